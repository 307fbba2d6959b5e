"""Checks real answers against the server's own /openapi.json.

The validator knows the part of JSON Schema that the document uses and refuses any keyword it does
not know, so that nothing is passed over in silence.
"""

import json
import re

ANNOTATIONS = {"description", "examples", "example", "default", "title", "format", "deprecated"}
TYPES = {
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}


class Mismatch(AssertionError):
    """An answer that the document does not describe."""


class Document:
    def __init__(self, text):
        self.root = json.loads(text)
        self.seen = set()  # (method, path template, status) that were checked
        # A path that is spelled out goes before one with a parameter in its place.
        self._paths = [(re.compile(re.sub(r"\\\{[a-z_]+\\\}", "[^/]+", re.escape(path))), path)
                       for path in sorted(self.root["paths"], key=lambda path: path.count("{"))]

    def resolve(self, node):
        while isinstance(node, dict) and set(node) == {"$ref"}:
            node = self.follow(node["$ref"])
        return node

    def follow(self, reference):
        assert reference.startswith("#/"), reference
        node = self.root
        for part in reference[2:].split("/"):
            node = node[part.replace("~1", "/").replace("~0", "~")]
        return node

    def operations(self):
        """All (method, path template)."""
        return {(method, path) for path, item in self.root["paths"].items()
                for method in item if method != "parameters"}

    def find(self, method, path):
        """(path template, operation), or None when the document has none."""
        path = path.split("?", 1)[0]
        for pattern, template in self._paths:
            if pattern.fullmatch(path):
                operation = self.root["paths"][template].get(method.lower())
                if operation is not None:
                    return template, operation
        return None

    def check(self, method, path, answer):
        """Raises Mismatch unless the document describes this answer to this request."""
        found = self.find("GET" if method == "HEAD" else method, path)
        if found is None:
            if answer.status not in (204, 400, 401, 404, 405, 414, 429, 501):
                raise Mismatch(f"{method} {path} is not in the document but answers {answer}")
            return
        template, operation = found
        responses = operation["responses"]
        described = responses.get(str(answer.status), responses.get("default"))
        if described is None:
            raise Mismatch(f"{method} {template}: {answer.status} is not described")
        described = self.resolve(described)
        self.seen.add((method.lower(), template, answer.status))
        for name, header in described.get("headers", {}).items():
            value = answer.headers.get(name.lower())
            header = self.resolve(header)
            if value is None:
                if header.get("required"):
                    raise Mismatch(f"{method} {template} {answer.status}: no {name}")
                continue
            schema = self.resolve(header.get("schema", {}))
            if schema.get("type") == "integer":
                value = int(value)
            self.validate(value, header.get("schema", {}), f"{name} of {method} {template}")
        if method == "HEAD" or answer.status in (204, 304):
            return
        media_type = answer.headers.get("content-type", "").split(";")[0]
        content = described.get("content", {})
        if media_type not in content:
            raise Mismatch(f"{method} {template} {answer.status}: {media_type!r} not in "
                           f"{list(content)}")
        if media_type.endswith("json"):
            self.validate(answer.json, content[media_type]["schema"],
                          f"{method} {template} {answer.status}")
        if media_type == "application/problem+json":
            # A schema of its own for the problems of each answer is what generators cannot have.
            if (answer.code not in content[media_type]["x-codes"]
                    or answer.json["status"] != answer.status):
                raise Mismatch(f"{method} {template} {answer.status}: {answer.json}")

    def validate(self, value, schema, where):
        for keyword, rule in schema.items():
            if keyword in ANNOTATIONS or (keyword.startswith("x-") and keyword != "x-pattern"):
                continue
            check = getattr(self, "_" + keyword.removeprefix("x-").lstrip("$"), None)
            if check is None:
                raise Mismatch(f"{where}: keyword {keyword} is unknown here")
            check(value, rule, schema, where)

    def fits(self, value, schema):
        try:
            self.validate(value, schema, "")
            return True
        except Mismatch:
            return False

    @staticmethod
    def _fail(where, value, words):
        raise Mismatch(f"{where}: {json.dumps(value)[:300]} {words}")

    def _ref(self, value, rule, _schema, where):
        self.validate(value, self.follow(rule), where)

    def _type(self, value, rule, _schema, where):
        names = rule if isinstance(rule, list) else [rule]
        if not any(TYPES[name](value) for name in names):
            self._fail(where, value, f"is not {rule}")

    def _enum(self, value, rule, _schema, where):
        if value not in rule:
            self._fail(where, value, f"is not one of {rule}")

    def _const(self, value, rule, _schema, where):
        if value != rule:
            self._fail(where, value, f"is not {rule!r}")

    def _minimum(self, value, rule, _schema, where):
        if TYPES["number"](value) and value < rule:
            self._fail(where, value, f"< {rule}")

    def _maximum(self, value, rule, _schema, where):
        if TYPES["number"](value) and value > rule:
            self._fail(where, value, f"> {rule}")

    def _minLength(self, value, rule, _schema, where):
        if isinstance(value, str) and len(value) < rule:
            self._fail(where, value, f"is shorter than {rule}")

    def _maxLength(self, value, rule, _schema, where):
        if isinstance(value, str) and len(value) > rule:
            self._fail(where, value, f"is longer than {rule}")

    def _pattern(self, value, rule, _schema, where):
        if isinstance(value, str) and not re.search(rule, value):
            self._fail(where, value, f"does not match {rule}")

    def _minItems(self, value, rule, _schema, where):
        if isinstance(value, list) and len(value) < rule:
            self._fail(where, value, f"has fewer than {rule} items")

    def _maxItems(self, value, rule, _schema, where):
        if isinstance(value, list) and len(value) > rule:
            self._fail(where, value, f"has more than {rule} items")

    def _items(self, value, rule, _schema, where):
        if isinstance(value, list):
            for index, item in enumerate(value):
                self.validate(item, rule, f"{where}[{index}]")

    def _required(self, value, rule, _schema, where):
        if isinstance(value, dict):
            missing = [name for name in rule if name not in value]
            if missing:
                self._fail(where, value, f"lacks {missing}")

    def _properties(self, value, rule, _schema, where):
        if isinstance(value, dict):
            for name, schema in rule.items():
                if name in value:
                    self.validate(value[name], schema, f"{where}.{name}")

    def _additionalProperties(self, value, rule, schema, where):
        if isinstance(value, dict):
            for name in value:
                if name in schema.get("properties", {}):
                    continue
                if rule is False:
                    self._fail(where, value, f"has the unknown field {name}")
                elif rule is not True:
                    self.validate(value[name], rule, f"{where}.{name}")

    def _oneOf(self, value, rule, _schema, where):
        count = sum(self.fits(value, schema) for schema in rule)
        if count != 1:
            self._fail(where, value, f"fits {count} of {len(rule)} choices")

    def _anyOf(self, value, rule, _schema, where):
        if not any(self.fits(value, schema) for schema in rule):
            self._fail(where, value, "fits no choice")

    def _allOf(self, value, rule, _schema, where):
        for schema in rule:
            self.validate(value, schema, where)

    def _not(self, value, rule, _schema, where):
        if self.fits(value, rule):
            self._fail(where, value, "is what it must not be")

    def _if(self, value, rule, schema, where):
        branch = "then" if self.fits(value, rule) else "else"
        if branch in schema:
            self.validate(value, schema[branch], where)

    def _then(self, *_):
        """Judged by _if."""

    def _else(self, *_):
        """Judged by _if."""
