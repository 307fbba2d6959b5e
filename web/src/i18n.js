// i18n.js: the languages of the storefront.
import en from "./i18n/en.js";
import ko from "./i18n/ko.js";

export const LANGUAGES = { ko, en };
