"""What the OpenAPI test asks beyond openapi.py: streams, times, no header that the document does
not know, and a record of which documented answers were seen."""

import datetime
import json

from openapi import Document, Mismatch

# What HTTP or a switched-on feature adds to any answer; the rest has to be in the document.
COMMON_HEADERS = {"date", "connection", "content-length", "content-type", "transfer-encoding",
                  "cache-control", "vary", "x-content-type-options", "x-accel-buffering",
                  "x-frame-options", "content-security-policy",
                  "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"}


def is_date_time(text):
    """RFC 3339 with a zone, naming a moment that exists."""
    try:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).tzinfo is not None
    except ValueError:
        return False


class Spec(Document):
    """The document with a memory of its answers: `answers` has (operation, status), and
    ("default", status) for those that only the default describes."""

    def __init__(self, text):
        super().__init__(text)
        self.answers = set()
        self.named = {self.operation(method, path)["operationId"]: (method, path)
                      for method, path in self.operations()}

    def operation(self, method, path):
        return self.root["paths"][path][method]

    def responses(self, name):
        method, path = self.named[name]
        return self.operation(method, path)["responses"]

    def documented(self):
        """Every (operation, status) that the document promises, without the defaults."""
        return {(name, status) for name in self.named for status in self.responses(name)
                if status != "default"}

    def check(self, method, path, answer):
        super().check(method, path, answer)
        found = self.find("GET" if method == "HEAD" else method, path)
        if found is None:
            raise Mismatch(f"{method} {path} is not in the document")
        _, operation = found
        status = str(answer.status)
        self.check_refusal(operation, answer, status if status in operation["responses"] else
                           "default")

    def check_refusal(self, operation, answer, entry):
        """Notes an answer that `entry` of the operation describes, and looks for headers that it
        does not describe."""
        described = self.resolve(operation["responses"][entry])
        name = "default" if entry == "default" else operation["operationId"]
        self.answers.add((name, str(answer.status)))
        known = {header.lower() for header in described.get("headers", {})} | COMMON_HEADERS
        more = set(answer.headers) - known
        if more:
            raise Mismatch(f"{operation['operationId']}: {sorted(more)} not described: {answer}")

    def check_stream(self, path, stream):
        """The head of a stream and its first event, which is returned."""
        _, operation = self.find("GET", path)
        described = self.resolve(operation["responses"][str(stream.status)])
        self.check_refusal(operation, stream, str(stream.status))
        content = described["content"][stream.headers["content-type"].split(";")[0]]
        name, data = stream.next()
        if name not in content["x-events"]:
            raise Mismatch(f"event {name!r} is not in the document")
        self.validate(data, content["x-events"][name], f"event {name}")
        return name, data

    def validate(self, value, schema, where):
        super().validate(value, schema, where)
        if schema.get("format") == "date-time" and isinstance(value, str):
            if not is_date_time(value):
                raise Mismatch(f"{where}: {json.dumps(value)} is not an RFC 3339 time")

    def _pattern(self, value, rule, schema, where):
        # JSON Schema's $ is the end of the text; Python's also stands before a last newline.
        if isinstance(value, str) and value.endswith("\n"):
            raise Mismatch(f"{where}: {json.dumps(value)} ends in a newline")
        super()._pattern(value, rule, schema, where)
