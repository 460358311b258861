"""What the PHI scrubber finds, misses and takes by mistake, and what it costs in time.

    python benchmarks/phi.py --out phi.json                          # built-in texts, from a fresh clone
    python benchmarks/phi.py --data spans.jsonl.gz --half report     # texts with spans of your own
    python benchmarks/phi.py --data spans.jsonl --bare               # these alone: no built-in texts, no speed
    python benchmarks/phi.py --free articles.jsonl --field answer    # texts without identifiers: every find is a false alarm

Built-in texts use benchmarks/phi_templates.txt (never trained on) and benchmarks/phi_held_out.json (names and towns in no list
of the scrubber). A data file has one object a line: text, spans [{start, end, type}], perhaps template and language. `--half`
splits by a hash of the template: tune on one half, report on the other. Tokens are words of letters and digits; a Chinese
character is one. Prints the tables of docs/stages/privacy.md; `--out` keeps everything as JSON.
"""

# ruff: noqa: E501
from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from medloop.privacy.phi import lists
from medloop.privacy.phi.find import find
from medloop.privacy.phi.numbers import luhn
from medloop.privacy.phi.scrub import VERSION, Scrubber

HERE = Path(__file__).parent
TOKEN = re.compile(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+")
SLOT = re.compile(r"<(\w+)>")
# Types found by form and checksum, in the words of the data files.
STRUCTURED = frozenset(
    """EMAIL EMAIL_ADDRESS PHONE PHONE_NUMBER MOBILE FAX SSN US_SSN MRN RECORD MEDICAL_RECORD PLAN HEALTH_PLAN INSURANCE ACCOUNT CARD
    CREDIT_CARD BANK_CARD BANKCARD BANK IBAN IBAN_CODE IP IP_ADDRESS MAC URL DOMAIN_NAME ID ID_CARD IDCARD RESIDENT_ID PLATE PASSPORT
    LICENCE LICENSE US_DRIVER_LICENSE VIN VEHICLE SERIAL DEVICE PHOTO WECHAT QQ DATE AGE_OVER_89 AGE ZIP POSTCODE""".split()
)
NAMES = frozenset({"NAME", "PERSON", "PATIENT", "DOCTOR", "STAFF", "RELATIVE"})
HOSTILE = (
    "1",
    "1 ",
    "a@",
    "A",
    "Mr. A",
    "患者",
    "9-",
    "王",
    "1.",
    "北京市",
    "Ab ",
    "Xy. ",
    "(1",
    "[NAME_1]",
    "0 0",
    "张医院",
    "省市县区",
    "John Smith ",
    "MRN ",
    "Dr. ",
    "Call Ann ",
    "St. ",
    "号码",
    "Mercy General ",
    "九十",
    "A1-",
    "my wife, ",
)


def wilson(hits: int, of: int) -> list[float]:
    """95 % confidence interval of a share."""
    if not of:
        return [0.0, 1.0]
    z, p = 1.959964, hits / of
    mid, half = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return [round(max(0.0, (mid - half) / (1 + z * z / of)), 4), round(min(1.0, (mid + half) / (1 + z * z / of)), 4)]


def read(path: Path) -> list[dict[str, Any]]:
    opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")
    with opened as file:
        return [json.loads(line) for line in file if line.strip()]


def half_of(row: dict[str, Any]) -> str:
    """tune or report, by the template; without a template id by the text with its spans taken out."""
    key, at = str(row["template"]) if "template" in row else "", 0
    if not key:
        for span in sorted(row["spans"], key=lambda s: int(s["start"])):
            key += row["text"][at : span["start"]] + f"<{span['type']}>"
            at = span["end"]
        key = (key + row["text"][at:]).lower()
    return "report" if hashlib.sha256(key.encode()).digest()[0] & 1 else "tune"


class Made:
    """The built-in texts, by the seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.held: dict[str, list[str]] = json.loads((HERE / "phi_held_out.json").read_text(encoding="utf-8"))
        self.surnames = lists.lines("surnames_zh.txt")[:120]
        self.forms: dict[str, list[str]] = {}
        part = ""
        for line in (HERE / "phi_templates.txt").read_text(encoding="utf-8").splitlines():
            if line.startswith("== "):
                part = line[3:]
            elif line and line[0] != "#":
                self.forms.setdefault(part, []).append(line)

    def digits(self, count: int, first: str = "0123456789") -> str:
        return self.rng.choice(first) + "".join(self.rng.choice("0123456789") for _ in range(count - 1))

    def resident_id(self) -> str:
        rng = self.rng
        body = f"{rng.choice(('110105', '310104', '440103', '510107'))}{rng.randint(1940, 2015)}{rng.randint(1, 12):02d}{rng.randint(1, 28):02d}{self.digits(3)}"
        weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
        return body + "10X98765432"[sum(int(d) * w for d, w in zip(body, weights, strict=True)) % 11]

    def card(self) -> str:
        body = self.rng.choice(("622202", "621700", "453912", "540735")) + self.digits(self.rng.choice((9, 12)))
        number = next(body + d for d in "0123456789" if luhn(body + d))
        return number if self.rng.random() < 0.6 else " ".join(number[i : i + 4] for i in range(0, len(number), 4))

    def chinese(self) -> str:
        return self.rng.choice(self.surnames) + self.rng.choice(self.held["given_zh"])

    def mobile(self, zh: bool) -> str:
        rng, seven = self.rng, self.digits(8)
        if zh:
            plain = f"1{rng.choice('3578')}{rng.choice('0123456789')}{seven}"
            wide = "".join(chr(ord(c) + 0xFEE0) for c in plain)
            return rng.choice(
                (plain, f"{plain[:3]}-{plain[3:7]}-{plain[7:]}", f"{plain[:3]} {plain[3:7]} {plain[7:]}", wide, f"+86 {plain}")
            )
        area = self.digits(3, "23456789")
        return rng.choice(
            (
                f"({area}) {seven[:3]}-{seven[3:7]}",
                f"{area}-{seven[:3]}-{seven[3:7]}",
                f"+1 {area} {seven[:3]} {seven[3:7]}",
                f"{area}.{seven[:3]}.{seven[3:7]} x{seven[:2]}",
            )
        )

    def date(self, zh: bool) -> str:
        y, m, d = self.rng.randint(1940, 2025), self.rng.randint(1, 12), self.rng.randint(1, 28)
        if zh:
            return self.rng.choice((f"{y}年{m}月{d}日", f"{y}-{m:02d}-{d:02d}", f"{y}.{m:02d}.{d:02d}", f"{m}月{d}日"))
        return self.rng.choice((f"{m:02d}/{d:02d}/{y}", f"March {d}, {y}", f"{d} October {y}", f"{y}-{m:02d}-{d:02d}"))

    def fill(self, slot: str, zh: bool) -> tuple[str, str]:
        """The filling and its type; a slot that ends in 2 is a second one of its sort."""
        rng, held, name = self.rng, self.held, slot.rstrip("2")
        letters = "".join(rng.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(5))
        first, last, town, road = (rng.choice(held[k]) for k in ("first", "last", "towns", "streets"))
        street = f"{rng.randint(1, 999)} {rng.choice((last, road))} {rng.choice(('Street', 'Road', 'Lane', 'Avenue'))}"
        values = {
            "FIRST": (first, "NAME"), "LAST": (last, "NAME"), "first": (first.lower(), "NAME"), "last": (last.lower(), "NAME"),
            "NAME": (self.chinese(), "NAME"), "TOWN": (town, "PLACE"), "town": (town.lower(), "PLACE"),
            "STREET": (street, "ADDRESS"), "street": (street.lower(), "ADDRESS"),
            "ADDRESS": (f"{rng.choice(held['cities_zh'])}市{rng.choice('东西南北新')}{rng.choice('城山湖江')}区{rng.choice(('建设', '人民', '解放', '文化'))}路{rng.randint(1, 300)}号{rng.randint(1, 20)}栋{rng.randint(101, 2605)}室", "ADDRESS"),
            "HOSPITAL": (f"{rng.choice(held['cities_zh'])}{rng.choice(('市第二人民医院', '市中心医院', '妇幼保健院', '中医院'))}" if zh else f"{town} {rng.choice(('General Hospital', 'Medical Center', 'Clinic'))}", "HOSPITAL"),
            "ORG": (f"{last} {rng.choice(('Logistics', 'Foods', 'Engineering'))} {rng.choice(('Ltd', 'Inc', 'LLC'))}", "ORG"),
            "DATE": (self.date(zh), "DATE"), "PHONE": (self.mobile(zh), "PHONE"), "ID": (self.resident_id(), "ID"), "CARD": (self.card(), "CARD"),
            "EMAIL": (f"{letters.lower()}{rng.randint(1, 99)}@{rng.choice(('example.org', 'mail.example.com'))}", "EMAIL"),
            "SSN": (f"{self.digits(3, '123456')}-{self.digits(2)}-{self.digits(4)}", "SSN"),
            "MRN": (rng.choice((self.digits(8), f"ZY{self.digits(6)}", f"H{self.digits(7)}")), "MRN"),
            "PLAN": (f"{letters[:3]}{self.digits(9)}", "PLAN"), "ACCOUNT": (self.digits(7), "ACCOUNT"), "SERIAL": (f"{letters[:2]}-{self.digits(6)}", "SERIAL"),
            "LICENCE": (f"{letters[:1]}{self.digits(7)}", "LICENCE"), "PASSPORT": (f"E{self.digits(8)}", "PASSPORT"),
            "PLATE": (f"{rng.choice('京沪粤浙苏')}{rng.choice('ABCDE')}{self.digits(5)}" if zh else f"{letters[:3]}{self.digits(4)}", "PLATE"),
            "PHOTO": (f"IMG_{self.digits(4)}.jpg", "PHOTO"), "IP": (f"10.{rng.randint(0, 255)}.{rng.randint(0, 255)}.{rng.randint(1, 254)}", "IP"),
            "URL": (f"https://portal.example.org/p/{self.digits(5)}", "URL"), "AGE": (str(rng.randint(20, 80)), ""),
        }  # fmt: skip
        return values[name]

    def rows(self, part: str, count: int) -> list[dict[str, Any]]:
        out = []
        for number in range(count):
            form = self.forms[part][number % len(self.forms[part])]
            text, spans, at, same = "", [], 0, dict[str, tuple[str, str]]()
            for match in SLOT.finditer(form):
                text += form[at : match.start()]
                value, kind = same.setdefault(match[1], self.fill(match[1], part.startswith("zh")))
                if kind:
                    spans.append({"start": len(text), "end": len(text) + len(value), "type": kind})
                text, at = text + value, match.end()
            out.append({"text": text + form[at:], "spans": spans, "template": f"{part}-{number % len(self.forms[part])}"})
        return out


def unseen(value: str) -> bool:
    """No part of this name is in a list of the scrubber; the network for Chinese has seen all common given names."""
    marks = lists.word_lists()
    if re.search(r"[\u4e00-\u9fff]", value):
        return False
    return not any(set(marks.get(word.lower(), "")) & set("FLC") for word in re.findall(r"[^\W\d_]+", value))


def measure(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Recall and precision of tokens whatever their kind, whole spans of names, and texts with anything left."""
    kinds: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    whole, new, false, leaking, structured = [0, 0], [0, 0], 0, 0, [0, 0]
    for row in rows:
        text = row["text"]
        taken = bytearray(len(text))
        for found in find(text):
            taken[found.start : found.end] = b"\1" * (found.end - found.start)
        gold = bytearray(len(text))
        left = False
        for span in row["spans"]:
            start, end, kind = span["start"], span["end"], span["type"].upper()
            gold[start:end] = b"\1" * (end - start)
            hits = [any(taken[t.start() : t.end()]) for t in TOKEN.finditer(text, start, end)]
            kinds[kind][0] += sum(hits)
            kinds[kind][1] += len(hits)
            left |= not all(hits)
            complete = all(hits)
            if kind in STRUCTURED:
                structured[0] += complete
                structured[1] += 1
            if kind in NAMES:
                whole[0] += complete
                whole[1] += 1
                if unseen(text[start:end]):
                    new[0] += complete
                    new[1] += 1
        leaking += left
        false += sum(any(taken[t.start() : t.end()]) and not any(gold[t.start() : t.end()]) for t in TOKEN.finditer(text))
    hits, total = sum(k[0] for k in kinds.values()), sum(k[1] for k in kinds.values())
    return {
        "texts": len(rows),
        "templates": len({str(row.get("template")) for row in rows}),
        "token_recall": share(hits, total),
        "token_precision": share(hits, hits + false),
        "structured_recall": share(*structured) | {"missed": structured[1] - structured[0]},
        "names_whole": share(*whole),
        "names_whole_unseen": share(*new),
        "texts_with_a_leak": share(leaking, len(rows)),
        "by_type": {kind: {"recall": round(a / b, 4), "tokens": b} for kind, (a, b) in sorted(kinds.items()) if b},
    }


def share(hits: int, of: int) -> dict[str, Any]:
    return {"value": round(hits / of, 4) if of else None, "of": of, "ci95": wilson(hits, of)}


def alarms(texts: list[str]) -> dict[str, Any]:
    """Every find in texts without identifiers."""
    kinds = Counter(found.kind for text in texts for found in find(text))
    hit = sum(bool(find(text)) for text in texts)
    return {
        "texts": len(texts),
        "per_text": round(sum(kinds.values()) / max(1, len(texts)), 4),
        "texts_hit": share(hit, len(texts)),
        "kinds": dict(kinds),
    }


def doubts(rows: list[dict[str, Any]], free: list[str]) -> list[dict[str, Any]]:
    """For each threshold: how many leaking texts quarantine would catch, and how many clean ones it would hold."""
    leaking, clean = [], []
    for row in rows:
        seen = Scrubber().assess(row["text"])
        taken = bytearray(len(row["text"]))
        for found in seen.spans:
            taken[found.start : found.end] = b"\1" * (found.end - found.start)
        tokens = [t for s in row["spans"] for t in TOKEN.finditer(row["text"], s["start"], s["end"])]
        left = seen.doubt < 1 and any(not any(taken[t.start() : t.end()]) for t in tokens)
        (leaking if left else clean).append(seen.doubt)
    quiet = [Scrubber().assess(text).doubt for text in free]
    return [
        {
            "threshold": at,
            "leaking_caught": share(sum(d >= at for d in leaking), len(leaking)),
            "clean_held": share(sum(d >= at for d in clean), len(clean)),
            "free_held": share(sum(d >= at for d in quiet), len(quiet)),
        }
        for at in (0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
    ]


def cost(texts: list[str], what: Callable[[str], object]) -> float:
    """Milliseconds of processor time for 1,000 bytes, the best of three rounds."""
    size, best = sum(len(text.encode()) for text in texts), math.inf
    for _ in range(3):
        began = time.process_time()
        for text in texts:
            what(text)
        best = min(best, time.process_time() - began)
    return 1e6 * best / size


def scrubbed(text: str) -> object:
    return Scrubber().assess(text)


def speed(rows: list[dict[str, Any]], free: list[str]) -> dict[str, Any]:
    short = [row["text"] for row in rows][:300]
    texts = ["\n".join(short[i : i + 8]) for i in range(0, len(short), 8)]  # about 1 kB each
    plain = max(cost([" ".join(texts)[:8000]], find), cost([" ".join(free)[:8000]], find))
    hostile = {piece: round(cost([piece * (8000 // len(piece.encode()))], find), 2) for piece in HOSTILE}
    return {
        "find_ms_per_kB": round(cost(texts, find), 2),
        "find_short_texts_ms_per_kB": round(cost(short, find), 2),
        "scrub_ms_per_kB": round(cost(texts, lambda text: Scrubber()._clean(text)), 2),
        "assess_ms_per_kB": round(cost(texts, scrubbed), 2),
        "find_free_ms_per_kB": round(cost(free, find), 2),
        "plain_8kB_ms_per_kB": round(plain, 2),
        "hostile_8kB_ms_per_kB": hostile,
        "worst_hostile_over_plain": round(max(hostile.values()) / plain, 2),
    }


def fields(rows: Iterable[dict[str, Any]], names: list[str], limit: int) -> Iterator[str]:
    for row in rows:
        text = "\n".join(str(row[name]) for name in names if isinstance(row.get(name), str))
        if text:
            yield text[:limit]


def tables(result: dict[str, Any]) -> Iterator[str]:
    """What docs/stages/privacy.md quotes, in its form."""

    def number(found: dict[str, Any]) -> str:
        return "–" if found["value"] is None else f"{found['value']:.4f} of {found['of']}"

    yield "| Texts | Number | Token recall | Precision | Structured missed | Whole names | Whole names, unseen | Texts with a leak |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, found in result["found"].items():
        missed, leak = found["structured_recall"], found["texts_with_a_leak"]
        low, high = (100 * side for side in leak["ci95"])
        recall, precision = found["token_recall"]["value"], found["token_precision"]["value"]
        yield (
            f"| {name} | {found['texts']} | {recall} | {precision} | {missed['missed']} of {missed['of']} | {number(found['names_whole'])} "
            f"| {number(found['names_whole_unseen'])} | {100 * (leak['value'] or 0):.1f} % ({low:.1f}–{high:.1f}) |"
        )
    for name, found in result["found"].items():
        yield f"\n{name}: " + ", ".join(f"{kind} {one['recall']:.3f}" for kind, one in found["by_type"].items())
    yield "\n| Texts | Number | Finds for each text | Texts with a find | Kinds |\n|---|---|---|---|---|"
    for name, found in result["false_alarms"].items():
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(found["kinds"].items(), key=lambda one: -one[1]))
        yield f"| {name} | {found['texts']} | {found['per_text']:.3f} | {100 * (found['texts_hit']['value'] or 0):.1f} % | {kinds} |"
    yield "\n| Texts | Threshold | Leaking texts caught | Clean ones held | Texts without identifiers held |\n|---|---|---|---|---|"
    for name, rows in result["quarantine"].items():
        for row in rows:
            yield f"| {name} | {row['threshold']} | {number(row['leaking_caught'])} | {number(row['clean_held'])} | {number(row['free_held'])} |"
    for name, value in result.get("speed", {}).items():
        yield f"{name}: {value}"


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--data", type=Path, action="append", default=[], help="JSONL with text and spans; may be repeated")
    args.add_argument("--half", choices=("tune", "report", "all"), default="all", help="half of the templates of --data")
    args.add_argument("--free", type=Path, action="append", default=[], help="JSONL of texts without identifiers")
    args.add_argument("--field", action="append", default=[], help="field of --free that holds text; may be repeated")
    args.add_argument("--sample", type=int, default=1000, help="rows of each --free file, evenly spread")
    args.add_argument("--skip", type=int, default=0, choices=(0, 1), help="of --free: even rows (0) or odd rows (1)")
    args.add_argument("--texts", type=int, default=1000, help="built-in texts of each language")
    args.add_argument("--seed", type=int, default=7)
    args.add_argument("--bare", action="store_true", help="only --data and --free: no built-in texts, no speed")
    args.add_argument("--out", type=Path, default=None, help="write the result as JSON")
    chosen = args.parse_args()
    made = Made(chosen.seed)
    parts = () if chosen.bare else ("en", "zh", "en report", "zh report")
    sets = {f"built-in {part}": made.rows(part, chosen.texts) for part in parts}
    for path in chosen.data:
        rows = [row for row in read(path) if chosen.half in ("all", half_of(row))]
        for language in sorted({str(row.get("language", "")) for row in rows}):
            name = f"{path.name} ({chosen.half})" + (f" {language}" if language else "")
            sets[name] = [row for row in rows if str(row.get("language", "")) == language]
    free = {} if chosen.bare else {f"built-in {part}": made.forms[part] for part in ("en free", "zh free")}
    for path in chosen.free:
        rows = read(path)[chosen.skip :: 2]
        free[path.name] = list(fields(rows[:: max(1, len(rows) // chosen.sample)], chosen.field or ["text"], 2000))
    result: dict[str, Any] = {
        "scrubber": VERSION,
        "found": {name: measure(rows) for name, rows in sets.items()},
        "false_alarms": {name: alarms(texts) for name, texts in free.items()},
        "quarantine": {name: doubts(rows, [t for n, ts in free.items() for t in ts][:400]) for name, rows in sets.items()},
    }
    if not chosen.bare:
        result["speed"] = speed(sets["built-in en"] + sets["built-in zh"], [t for texts in free.values() for t in texts])
    if chosen.out:
        chosen.out.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print("\n".join(tables(result)))


if __name__ == "__main__":
    main()
