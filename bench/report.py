"""What was measured, as text, Markdown or JSON."""

import json
import os
import platform
import re
import statistics
from pathlib import Path

TITLES = {
    "claims": "Requests per second of server CPU, and the ratio to the floor",
    "growth": "Cost of a request as the policy holds more claims",
    "gate": "The gate alone, in batches of 64",
    "memory": "Memory",
    "restore": "Restoring at the start",
    "start": "A start with many policies, seconds",
    "ranking": "Which products sell best, CPU seconds of one answer: SQL against the board",
    "orders": "Orders per second of server CPU, against a plain transaction per order",
    "ledgers": "Writing claims into each ledger, rows per second of time",
    "serving": "Durable claims over HTTP on each ledger",
    "kafka": "Claims through Kafka against the direct ways, microseconds per claim",
    "redis": "The gate in Redis, decisions per second of Redis's CPU, against a script per request",
    "rush": "CPU microseconds a load generator spends on a request",
    "streams": "CPU microseconds per claim while 1,000 streams are open",
    "crowd": "5,000 claims a second alone, and beside 200 hostile connections",
    "redis_path": "Claims through the gate in Redis, CPU seconds per million",
}


def spread(values):
    """Median and middle half: a machine's slow moments stretch the ends, however long one waits."""
    if len(values) == 1:
        return (values[0],) * 3
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, low, high


class Figure:
    """One measured value with its spread, the bound it has to keep, and what else is known."""

    def __init__(self, name, value, target=None, most=False, **details):
        self.name = name
        self.value, self.low, self.high = value if value else (None, None, None)
        self.target = target
        self.most = most
        self.details = details

    @property
    def ok(self):
        if self.target is None or self.value is None:
            return None
        return self.value <= self.target if self.most else self.value >= self.target

    def verdict(self):
        if self.target is None:
            return ""
        sign = "≤" if self.most else "≥"
        word = {True: "ok", False: "MISSED", None: "not measured"}[self.ok]
        return f"{sign} {self.target:g} {word}"

    def ratio(self):
        if self.low == self.high:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} ({self.low:.2f}–{self.high:.2f})"


class Report:
    def __init__(self, **settings):
        self.settings = settings
        self.sections = {}
        self.company = {}

    def add(self, section, figure):
        self.sections.setdefault(section, []).append(figure)

    def note_company(self, others, steal, total):
        """How much of a core other processes and the hypervisor took while load was on."""
        if total > 0:
            self.company = {"others": others / total, "steal": steal / total}

    def missed(self):
        return [f.name for figures in self.sections.values() for f in figures if f.ok is False]

    def _machine(self):
        model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
        return f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores, " \
               f"Linux {platform.release()}"

    def _notes(self):
        notes = [f"{self.settings['rounds']} rounds of {self.settings['seconds']:g} s each, "
                 f"median (middle half); {self._machine()}."]
        if self.company.get("others", 0) > 0.1 or self.company.get("steal", 0) > 0.02:
            notes.append(f"The machine was not quiet: other processes took "
                         f"{self.company['others']:.0%} of a core meanwhile, the hypervisor "
                         f"{self.company['steal']:.0%}.")
        return notes

    def _table(self, section):
        """A header and rows of cells; the first column is text, the others are numbers."""
        few = f"{self.settings['held_few']:,} held"
        many = f"{self.settings['held_many']:,} held"
        rows = []
        for f in self.sections[section]:
            d = f.details
            if section == "claims":
                rows.append([f.name, f"{d['floor'][0]:,.0f}", f"{d['speed'][0]:,.0f}", f.ratio(),
                             f.verdict()])
            elif section == "growth":
                rows.append([f.name, d["few"], d["many"], f.ratio(),
                             f.verdict()])
            elif section == "gate":
                instructions = "–" if f.value is None else f"{f.value:.0f}"
                rows.append([f.name, f"{d['per_second'] / 1e6:.1f} M", f"{d['few_ns']:.0f} ns",
                             f"{d['many_ns']:.0f} ns", instructions, f.verdict()])
            elif section in ("ledgers", "redis", "orders"):
                rows.append([f.name, f"{d['drained']:,.0f}", f"{d['against']:,.0f}", f.ratio(),
                             f.verdict()])
            elif section == "redis_path":
                parts = [f"{d[part]:.1f}" if part in d else "" for part in ("server", "redis")]
                rows.append([f.name, *parts, f.ratio(), f.verdict()])
            elif section == "ranking":
                rows.append([f.name, f"{d['sql']:.3f}", f"{d['board']:.6f}",
                             f"{f.value:,.0f}", f.verdict()])
            elif section == "kafka":
                rows.append([f.name, f"{d['kafka']:.1f}", f"{d['direct']:.1f}", f.ratio(),
                             f.verdict()])
            elif section == "rush":
                rows.append([f.name, f"{d['rush']:.2f}", f"{d['peer']:.2f}", f.ratio(),
                             f.verdict()])
            elif section == "streams":
                rows.append([f.name, f"{d['alone']:.2f}", f"{d['watched']:.2f}",
                             f"{d['share']:.1%}", f"{d['busy']:.0%}", f.ratio(), f.verdict()])
            elif section == "crowd":
                rows.append([f.name, f"{d['alone']:.2f}", f"{d['beside']:.2f}", f.ratio(),
                             f.verdict()])
            elif section == "serving":
                rows.append([f.name, f"{d['speed']:,.0f}", f"{d['wall']:,.0f}"])
            else:
                rows.append([f.name, f.ratio(), f.verdict()])
        header = {
            "claims": ["", "floor /s", "dibs /s", "dibs : floor", "target"],
            "growth": ["", few, many, "growth", "target"],
            "ranking": ["", "SQL s", "board s", "ratio", "target"],
            "orders": ["", "dibs /s", "plain SQL /s", "ratio", "target"],
            "ledgers": ["", "dibs /s", "other /s", "ratio", "target"],
            "kafka": ["", "first µs", "second µs", "ratio", "target"],
            "rush": ["", "rush µs", "peer µs", "ratio", "target"],
            "streams": ["", "none µs", "1,000 µs", "of a core", "busy", "ratio", "target"],
            "crowd": ["", "alone", "beside it", "ratio or most", "target"],
            "redis": ["", "dibs /s", "script /s", "ratio", "target"],
            "redis_path": ["", "server", "Redis", "sum or ratio", "target"],
            "serving": ["", "per CPU second", "per second of time"],
            "gate": ["", "per second", few, many, "instructions", "target"],
        }.get(section, ["", "measured", "target"])
        return header, rows

    def to_text(self):
        lines = []
        for section in [s for s in TITLES if s in self.sections]:
            header, rows = self._table(section)
            widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
            lines.append(TITLES[section])
            for row in [header, *rows]:
                cells = [row[0].ljust(widths[0])]
                cells += [c.rjust(w) for c, w in zip(row[1:-1], widths[1:-1])]
                lines.append(("  " + "  ".join([*cells, row[-1]])).rstrip())
            lines.append("")
        return "\n".join(lines + self._notes())

    def to_markdown(self):
        lines = []
        for section in [s for s in TITLES if s in self.sections]:
            header, rows = self._table(section)
            lines += [f"**{TITLES[section]}**", ""]
            lines.append("| " + " | ".join(header) + " |")
            lines.append("|---|" + "---:|" * (len(header) - 2) + "---|")
            lines += ["| " + " | ".join(row) + " |" for row in rows] + [""]
        return "\n".join(lines + [" ".join(self._notes())])

    def to_json(self):
        sections = {
            name: [{"name": f.name, "value": f.value, "low": f.low, "high": f.high,
                    "target": f.target, "ok": f.ok, **f.details} for f in figures]
            for name, figures in self.sections.items()}
        return json.dumps({"settings": self.settings, "machine": self._machine(),
                           "company": self.company, "missed": self.missed(), **sections},
                          indent=2)
