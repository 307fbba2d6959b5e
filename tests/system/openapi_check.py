"""Holds real answers against the OpenAPI document, and remembers which were seen.

The validator knows exactly the JSON Schema keywords that the document uses; any other keyword
raises, so that nothing in the document is silently ignored.
"""

import datetime
import json
import re

IGNORED = {"description", "examples", "example", "default"}
TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}
# What the HTTP layer adds to any answer; everything else has to be in the document.
HTTP_HEADERS = {"date", "connection", "content-length", "content-type", "transfer-encoding",
                "cache-control", "vary", "x-content-type-options", "content-security-policy"}


def is_date_time(text):
    """RFC 3339 with a zone, naming a moment that exists."""
    try:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).tzinfo is not None
    except ValueError:
        return False


class Mismatch(AssertionError):
    """An answer that the document does not allow."""


class Spec:
    """The document, with the ways to find and check things in it."""

    def __init__(self, document):
        self.document = document
        self.operations = {}
        self.templates = []
        for template, item in document["paths"].items():
            pattern = re.compile(re.sub(r"\\{[a-z_]+\\}", "[^/]+", re.escape(template)) + "$")
            self.templates.append((template.count("{"), pattern, item))
            for method, operation in item.items():
                if method != "parameters":
                    self.operations[operation["operationId"]] = operation
        self.templates.sort(key=lambda entry: entry[0])
        self.seen = set()

    # --- finding ---

    def resolve(self, node):
        """Follows a $ref and lays what stands beside it over the target."""
        if "$ref" not in node:
            return node
        target = self.document
        for step in node["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        beside = {name: value for name, value in node.items() if name != "$ref"}
        return {**self.resolve(target), **beside} if beside else self.resolve(target)

    def operation(self, method, path):
        """The operation that a request is for, or None when its path or method has none."""
        path = path.split("?")[0]
        for _, pattern, item in self.templates:
            if pattern.match(path):
                return item.get("get" if method == "HEAD" else method.lower())
        return None

    def documented(self):
        """Every (operation, status) that the document promises, without the defaults."""
        return {(name, status) for name, operation in self.operations.items()
                for status in operation["responses"] if status != "default"}

    # --- checking answers ---

    def check(self, method, path, answer, body=None):
        """Raises Mismatch unless the document allows this answer. `body` replaces the answer's
        own, for streams; returns the matching response object."""
        operation = self.operation(method, path)
        if operation is None:
            raise Mismatch(f"{method} {path} is not in the document")
        return self.check_operation(operation, method, answer, body)

    def check_operation(self, operation, method, answer, body=None):
        responses = operation["responses"]
        status = str(answer.status)
        if status in responses:
            self.seen.add((operation["operationId"], status))
        else:
            self.seen.add(("default", status))
        if status not in responses and "default" not in responses:
            raise Mismatch(f"{operation['operationId']}: {status} is not in the document: {answer}")
        response = self.resolve(responses.get(status) or responses["default"])
        where = f"{operation['operationId']} {status}"
        self.check_headers(response, answer, where)
        self.check_body(response, method, answer, body, where)
        return response

    def check_headers(self, response, answer, where):
        documented = {name.lower(): self.resolve(header)
                      for name, header in response.get("headers", {}).items()}
        for name, header in documented.items():
            text = answer.headers.get(name)
            if text is None:
                if header.get("required"):
                    raise Mismatch(f"{where}: no {name}: {answer}")
                continue
            schema = self.resolve(header["schema"])
            value = int(text) if schema.get("type") == "integer" and text.isdigit() else text
            self.validate(schema, value, f"{where}: {name}")
        for name in answer.headers:
            if name not in documented and name not in HTTP_HEADERS:
                raise Mismatch(f"{where}: {name} is not in the document: {answer}")

    def check_body(self, response, method, answer, body, where):
        media = answer.headers.get("content-type", "").split(";")[0]
        if media not in response.get("content", {}):
            raise Mismatch(f"{where}: content type {media!r} is not in the document: {answer}")
        if method == "HEAD":
            if answer.body:
                raise Mismatch(f"{where}: HEAD with a body: {answer}")
            return
        content = response["content"][media]
        if body is None and (media == "application/json" or media.endswith("+json")):
            body = answer.json
        elif body is None:
            body = answer.body.decode("utf-8")
        self.validate(content["schema"], body, where)

    def check_event(self, response, name, data):
        """One event of a stream against the document's x-events."""
        events = response["content"]["text/event-stream"]["x-events"]
        if name not in events:
            raise Mismatch(f"event {name!r} is not in the document")
        self.validate(events[name], data, f"event {name}")

    # --- JSON Schema ---

    def validate(self, schema, value, where):
        """Raises Mismatch when the value is not what the schema says."""
        if "$ref" in schema:
            target = {"$ref": schema["$ref"]}
            self.validate(self.resolve(target), value, where)
        for keyword, rule in schema.items():
            if keyword == "$ref" or keyword in IGNORED or keyword in ("then",):
                continue
            check = getattr(self, "_" + keyword, None)
            if check is None:
                raise NotImplementedError(f"keyword {keyword} in {where}")
            check(rule, value, where, schema)

    def fits(self, schema, value, where):
        try:
            self.validate(schema, value, where)
        except Mismatch:
            return False
        return True

    @staticmethod
    def _need(condition, where, value, words):
        if not condition:
            raise Mismatch(f"{where}: {words}: {json.dumps(value)[:400]}")

    def _type(self, rule, value, where, _):
        names = rule if isinstance(rule, list) else [rule]
        self._need(any(TYPES[name](value) for name in names), where, value, f"is not {rule}")

    def _enum(self, rule, value, where, _):
        self._need(value in rule, where, value, f"is none of {rule}")

    def _const(self, rule, value, where, _):
        self._need(value == rule and isinstance(value, type(rule)), where, value, f"is not {rule}")

    def _properties(self, rule, value, where, _):
        if isinstance(value, dict):
            for name, schema in rule.items():
                if name in value:
                    self.validate(schema, value[name], f"{where}.{name}")

    def _required(self, rule, value, where, _):
        if isinstance(value, dict):
            for name in rule:
                self._need(name in value, where, value, f"has no {name}")

    def _additionalProperties(self, rule, value, where, schema):
        assert rule is False, "the document only ever says false"
        if isinstance(value, dict):
            more = set(value) - set(schema["properties"])
            self._need(not more, where, value, f"has {sorted(more)} too")

    def _items(self, rule, value, where, _):
        if isinstance(value, list):
            for index, item in enumerate(value):
                self.validate(rule, item, f"{where}[{index}]")

    def _minItems(self, rule, value, where, _):
        self._need(not isinstance(value, list) or len(value) >= rule, where, value, "is too short")

    def _maxItems(self, rule, value, where, _):
        self._need(not isinstance(value, list) or len(value) <= rule, where, value, "is too long")

    def _minimum(self, rule, value, where, _):
        self._need(not TYPES["integer"](value) or value >= rule, where, value, f"is under {rule}")

    def _maximum(self, rule, value, where, _):
        self._need(not TYPES["integer"](value) or value <= rule, where, value, f"is over {rule}")

    def _minLength(self, rule, value, where, _):
        self._need(not isinstance(value, str) or len(value) >= rule, where, value, "is too short")

    def _maxLength(self, rule, value, where, _):
        self._need(not isinstance(value, str) or len(value) <= rule, where, value, "is too long")

    def _pattern(self, rule, value, where, _):
        # JSON Schema's $ is the end of the text; Python's also stands before a last newline.
        fits = not isinstance(value, str) or (re.search(rule, value) and "\n" not in value)
        self._need(fits, where, value, f"does not fit {rule}")

    def _format(self, rule, value, where, _):
        if not isinstance(value, str):
            return
        if rule == "date-time":
            self._need(is_date_time(value), where, value, "is not an RFC 3339 time")
        else:
            assert rule == "uri-reference", rule
            self._need(re.fullmatch(r"[!-~]+", value), where, value, "is not a URI reference")

    def _oneOf(self, rule, value, where, _):
        fitting = sum(self.fits(schema, value, where) for schema in rule)
        self._need(fitting == 1, where, value, f"fits {fitting} of the schemas, not 1")

    def _allOf(self, rule, value, where, _):
        for schema in rule:
            self.validate(schema, value, where)

    def _not(self, rule, value, where, _):
        self._need(not self.fits(rule, value, where), where, value, f"must not be {rule}")

    def _if(self, rule, value, where, schema):
        if self.fits(rule, value, where):
            self.validate(schema["then"], value, where)
