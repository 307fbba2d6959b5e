// money.js: amounts in a currency's smallest unit, as people write them.

/* 500 of USD as "$5.00", 5000 of KRW as "₩5,000" and in Korean "5,000원"; without a currency the number
   alone. */
export function money(amount, currency, language = "en") {
  if (!currency) return amount.toLocaleString(language);
  const format = new Intl.NumberFormat(language, { style: "currency", currency });
  const value = amount / 10 ** format.resolvedOptions().maximumFractionDigits;
  if (language === "ko" && currency === "KRW") return `${value.toLocaleString(language)}원`;
  return format.format(value);
}
