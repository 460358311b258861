"""A correction as a proposed rule: what the expert changed, said as a rule, with the questions that it is for.

    draft = reflect(CorrectedAnswer(question, original, golden, reason, ...), others=[an expert's answer to such a question, ...])
    draft.text, draft.triggers, draft.first_sentence, draft.expects

The detectors read both answers (`acts`, handed in by the loop); what the expert added or removed becomes the rule, what the
lexicon finds in the question its triggers, and the sentence of the expert with the added act the first sentence that is proposed.
Only a sentence that the expert added can stand first: with an act, with a time to come back, in other corrections too, or the
only one; where none of these is there, none is proposed.
A reason that instructs is the rule; what the expert found wrong only where the detectors read nothing, as a mistake to avoid.
With a teacher, the words of rule and triggers are the teacher's (`with_words`), and it may name acts to forbid; what a good
answer must have stays what the detectors read. Triggers also reach
everyday words (`≈topic`, lay_words.py). Nothing here is live before a person approves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from medloop import lexicon
from medloop.codebook.retrieve import has_words
from medloop.codebook.similar import concepts, ngram_vectors
from medloop.contracts import EntryText
from medloop.contracts.detect import Act, ActKind
from medloop.contracts.rule import FORBIDDEN_ACTS, MOST_RULE, MOST_SENTENCE, MOST_TEXT, ForbiddenAct
from medloop.lexicon.language import detect_language
from medloop.models.codebook_prompt import SAY_FIRST

# Signs of one illness: a rule about one of them is about all of them.
FAMILIES = (
    ("stroke_face", "stroke_speech", "stroke_weakness"),
    ("chest_pain", "cardiac_chest_pain", "radiating_pain"),
)
GROUPS = {"child": "儿童", "pregnancy": "怀孕", "elderly": "老人"}  # the lexicon has no Chinese names for them
LAY_GROUPS = ("child",)  # lay_words.py knows how people speak of them
LAY_ONLY = ("pregnancy",)  # the plain word is in more questions about becoming pregnant than about being it
STOPPING = "停药|停用|不吃了|断药|stop taking|come off|quit taking|≈stopping"
DOSING = (
    "剂量|用量|吃多少|喝多少|喂多少|用多少|毫克|毫升|几片|几粒|几颗|吃几|喂几"
    "|dose|doses|dosage|how much|how many|how often|mg|ml|milligrams|≈dose"
)
# A time to be seen again ("come back in 48 hours", "一周后复查"): no act of the detectors, and it belongs to the question.
_AGAIN = re.compile(
    r"复诊|复查|随访|随诊|回访|再来|再看|再次就诊"
    r"|\b(?:come back|return|follow[- ]?up|re-?check|check-?up|check|seen again|review)\b"
    r"|\bsee (?:us|me|a doctor|your doctor) again\b",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"[\d一二两三四五六七八九十几半]+\s*(?:个)?(?:小时|天|日|周|星期|礼拜|月)|明天|后天|次日|当天"
    r"|\b(?:\d+|an?|one|two|three|four|five|six|seven|ten|few)[\s-]+(?:hours?|days?|weeks?|months?)\b|\btomorrow\b",
    re.IGNORECASE,
)
# What an expert adds, gravest first, and what an expert takes out.
ADDED: tuple[ActKind, ...] = ("urges_care_now", "refuses", "warns_against", "sends_to_doctor", "asks_back", "home_care")
REMOVED: tuple[ActKind, ...] = ("stops_medicine", "changes_medicine", "gives_dose", "starts_medicine", "reassures")
# What an emergency must not hear, whatever the corrected answer said; and a medicine that is only named ("if it hurts, 400 mg").
CALMING: tuple[ForbiddenAct, ...] = ("reassures", "home_care", "urges_care_now/negated", "sends_to_doctor/negated")
MEDICINE: tuple[ForbiddenAct, ...] = ("gives_dose", "starts_medicine")
WORDS: dict[str, tuple[str, str]] = {
    "urges_care_now": ("首先让患者立即就医或拨打急救电话。", "Send to emergency care first."),
    "refuses": ("说明不能回答，并指明去哪里求助。", "Say that you cannot answer this, and where to get help."),
    "warns_against": ("说明什么不能做。", "Say what must not be done."),
    "sends_to_doctor": ("建议患者去看医生或复诊。", "Advise to see a doctor or to come back for a check."),
    "asks_back": ("先问清楚再给建议。", "Ask back before you advise."),
    "home_care": ("说明在家怎样护理。", "Say what to do at home."),
    "stops_medicine": ("不要建议患者自行停药。", "Do not tell the patient to stop the medicine."),
    "changes_medicine": ("不要建议患者自行改变药量。", "Do not tell the patient to change the dose."),
    "gives_dose": ("不要给出剂量，请让医生或药师按体重和病情决定。", "Do not give a dose; a doctor or pharmacist decides it."),
    "starts_medicine": ("不要建议患者自行用药。", "Do not tell the patient to start a medicine."),
    "reassures": ("不要用“没事”来安慰。", "Do not say that it is harmless."),
    "language": ("用提问的语言回答。", "Answer in the language of the question."),
}
NAMED_LANGUAGE = (
    "用中文回答。",
    "Answer in English.",
)  # small models follow a name, and less so "of the question" (docs/log.md#repair)
UNCLEAR = (  # no rule, but what stands in a draft until somebody has written one
    "专家补充了什么还不明确，批准前请改写这条规则。",
    "What the expert added is not clear; rewrite this rule before you approve it.",
)
MISTAKE = ("不要再犯这个错误：", "Do not make this mistake: ")  # before what the expert says was wrong, which is no instruction
# What makes the expert's reason an instruction ("Ask for the weight first."), and not what was wrong ("Too high a dose.").
_INSTRUCTS = re.compile(
    r"(?<!没有)(?<!未)首先|必须|务必|应当|应该?先|(?:^|[，。；：])(?:请|先|不要|不能|应)"
    r"|^(?:always|never|first|do not|don['’]t|ask|say|tell|send|advise|warn|call)\b|\b(?:must|should)\b(?! (?:not )?have)",
    re.IGNORECASE,
)
# "Your father may have a stroke" would be said to a daughter, too; where another sentence will do, that one stands first.
_NAMES_RELATIVE = re.compile(
    r"[您你](?:的|家)?(?:爸|妈|父|母|爷|奶|外公|外婆|姥|儿子|女儿|丈夫|妻子|老公|老婆|先生|太太|哥|姐|弟|妹)"
    r"|\byour (?:father|dad|mother|mom|mum|son|daughter|husband|wife|brother|sister|grand\w+|partner)\b",
    re.IGNORECASE,
)
REWORDED = 0.2  # cosine of n-grams from which a sentence says an earlier one in other words
INJECTED = ("ignore", "忽略", "system prompt", "系统提示")  # a rule is about answers, not about other rules


@dataclass(frozen=True)
class CorrectedAnswer:
    """A correction without identifiers, and what the detectors read in both answers."""

    question: str
    original: str
    golden: str
    reason: str = ""
    original_acts: Sequence[Act] = ()
    golden_acts: Sequence[Act] = ()

    @property
    def is_chinese(self) -> bool:
        return detect_language(self.question) in ("zh", "mixed")

    def added(self) -> list[ActKind]:
        before, after = _directive(self.original_acts), _directive(self.golden_acts)
        return [kind for kind in ADDED if kind in after - before]

    def removed(self) -> list[ActKind]:
        before, after = _directive(self.original_acts), _directive(self.golden_acts)
        return [kind for kind in REMOVED if kind in before - after]

    def forbids(self) -> tuple[ForbiddenAct, ...]:
        """What the expert took out and no answer to such a question may do again."""
        if self.changes_language() and "urges_care_now" not in self.added():
            return ("other_language",)
        before, after = _with_conditional(self.original_acts), _with_conditional(self.golden_acts)
        gone: list[ForbiddenAct] = [kind for kind in FORBIDDEN_ACTS if kind in before - after and kind != "home_care"]
        if "starts_medicine/negated" in after and set(gone) & set(MEDICINE):
            gone += MEDICINE
        urgent = CALMING if "urges_care_now" in self.added() else ()
        return tuple(kind for kind in FORBIDDEN_ACTS if kind in gone or kind in urgent)

    def changes_language(self) -> bool:
        wanted = detect_language(self.question)
        return detect_language(self.original) != wanted == detect_language(self.golden) and wanted in ("zh", "en")


def reflect(correction: CorrectedAnswer, others: Sequence[str] = ()) -> EntryText:
    """`others` are experts' answers to other questions of this kind: a sentence that they share is not there by chance."""
    added, removed = correction.added(), correction.removed()
    sentence = _first_sentence(correction, added, removed, others)
    return EntryText(
        text=_text(correction, added, removed, sentence), triggers=tuple(_triggers(correction, added, removed)),
        first_sentence=sentence, question=" ".join(correction.question.split()), expects=expected_acts(correction),
        forbids=correction.forbids(), answers=(_answer(correction),),
    )  # fmt: skip


def _answer(correction: CorrectedAnswer) -> str:
    """The expert's answer, where it is about nobody and not too long."""
    answer = " ".join(correction.golden.split())
    return answer if "[" not in answer and len(answer) <= MOST_TEXT else ""


def expected_acts(correction: CorrectedAnswer) -> tuple[str, ...]:
    """What tells a good answer to this question from the bad one, for the regression set."""
    if "other_language" in correction.forbids():
        return ("same_language",)
    # Home care or a question back is one of many good ways; what protects the patient is not.
    must = [kind for kind in correction.added() if kind in ("urges_care_now", "refuses", "sends_to_doctor", "warns_against")]
    language = ["same_language"] if correction.changes_language() else []
    return (*must, *(f"!{kind}" for kind in correction.removed()), *language)


def with_words(
    correction: CorrectedAnswer, rule: str, triggers: Sequence[str], others: Sequence[str] = (),
    forbids: Sequence[ForbiddenAct] = (),
) -> EntryText | None:  # fmt: skip
    """The template's entry with the words of a teacher; None where they are no rule about answers.

    What it forbids comes beside what the detectors read, and never takes out what the expert's own answer does.
    """
    rule = " ".join(rule.split())
    if not 0 < len(rule) <= MOST_RULE or gives_orders(rule):
        return None
    template = reflect(correction, others)
    usable = tuple(word for word in (" ".join(each.split()) for each in triggers[:4]) if 0 < len(word) <= 60 and word != "*")
    allowed = _with_conditional(correction.golden_acts)
    wanted = {*template.forbids, *(act for act in forbids if act not in allowed and act != "other_language")}
    acts = tuple(act for act in FORBIDDEN_ACTS if act in wanted)
    return template.model_copy(update={"text": rule, "triggers": template.triggers or usable, "forbids": acts})


def gives_orders(text: str) -> bool:
    """Whether a text speaks about other instructions, as an injected one would."""
    return any(word in text.lower() for word in INJECTED)


def _directive(acts: Sequence[Act]) -> set[ActKind]:
    return {act.kind for act in acts if act.polarity == "directive"}


def _with_conditional(acts: Sequence[Act]) -> set[str]:
    """Acts as rules forbid them: a medicine also where it is only for a case, care where it is said not to be needed."""
    return {name for act in acts if (name := forbidden_name(act))}


def forbidden_name(act: Act) -> str | None:
    """The name under which a rule can forbid an act; None where the act does not advise anything."""
    if act.polarity == "directive" or (act.polarity == "conditional" and act.kind in MEDICINE):
        return act.kind
    return f"{act.kind}/negated" if act.polarity == "negated" else None


def _text(correction: CorrectedAnswer, added: Sequence[str], removed: Sequence[str], sentence: str) -> str:
    chinese = correction.is_chinese
    kinds = [*added[:2], *removed[:2], *(["language"] if correction.changes_language() else [])]
    if "other_language" in correction.forbids():  # about no illness: it is for every question in this language
        return NAMED_LANGUAGE[0 if chinese else 1]
    parts = [WORDS[kind][0 if chinese else 1] for kind in kinds]
    if not parts and sentence:
        parts = [SAY_FIRST[0 if chinese else 1] + sentence]
    reason = " ".join(correction.reason.split())
    if len(reason) <= MOST_RULE and _INSTRUCTS.search(reason):
        return reason
    mistake = MISTAKE[0 if chinese else 1] + reason
    if not parts and reason and len(mistake) <= MOST_RULE:
        return mistake
    parts = parts or [UNCLEAR[0 if chinese else 1]]
    names = (topic_name(concept, chinese) for concept in sorted(concepts(correction.question)))
    return about(("、" if chinese else ", ").join(filter(None, names)), parts, chinese)


def about(topic: str, parts: Sequence[str], chinese: bool) -> str:
    """The words of a rule about a topic, or about questions like the one that it comes from."""
    if chinese:
        return f"{f'问到{topic}时' if topic else '此类问题'}：{''.join(parts)}"
    return f"{f'About {topic}' if topic else 'For questions like this'}: {' '.join(parts)}"


def topic_name(concept: str, chinese: bool) -> str:
    kind, _, name = concept.partition(":")
    if kind == "drug":
        zh = lexicon.drugs()[name].zh
        return zh[0] if chinese and zh else name.replace("_", " ")
    if kind == "group":
        return GROUPS.get(name, name) if chinese else name
    if kind in ("red_flag", "condition"):
        entry = lexicon.describe(kind, name)
        return entry.zh_name if chinese else entry.en_name
    return ""


def _triggers(correction: CorrectedAnswer, added: Sequence[str], removed: Sequence[str]) -> Iterator[str]:
    """One trigger for the red flags (any of them), one for each group and drug; nothing where the lexicon finds nothing."""
    if "other_language" in correction.forbids():
        yield "*"
        return
    found = concepts(correction.question)
    flags = {name.partition(":")[2] for name in found if name.startswith("red_flag:")}
    groups = sorted(name.partition(":")[2] for name in found if name.startswith("group:"))
    if flags and ("urges_care_now" in added or not groups):
        whole = flags.union(*(family for family in FAMILIES if flags & set(family)))
        entries = [lexicon.describe("red_flag", flag) for flag in sorted(whole)]
        lay = ("≈stroke",) if whole & set(FAMILIES[0]) else ()
        yield "|".join([*(name for entry in entries for name in (entry.zh_name, entry.en_name)), *lay])
        return
    for group in groups:
        lay_only = group in LAY_ONLY
        yield f"≈{group}" if lay_only else f"{GROUPS.get(group, group)}|{group}" + (f"|≈{group}" if group in LAY_GROUPS else "")
    if "act:stop_verb" in found or "stops_medicine" in removed:
        yield STOPPING  # whichever medicine it is
        return
    named = {name.partition(":")[2] for name in found | _families(correction) if name.startswith("drug:")}
    drugs = sorted(drug for drug in named if not (groups and lexicon.drugs()[drug].family == "any"))
    about_dose = "gives_dose" in correction.forbids() or has_dosing(correction.golden)
    if about_dose and not drugs and has_dosing(correction.question):
        yield DOSING
    if drugs:
        yield "|".join(dict.fromkeys(name for drug in drugs for name in (drug, *lexicon.drugs()[drug].zh[:1])))
    yield from sorted(name.partition(":")[2].replace("_", " ") for name in found if name.startswith("condition:"))


def _families(correction: CorrectedAnswer) -> frozenset[str]:
    """The families that the expert speaks of, of drugs in the question: "antibiotics" where the question names amoxicillin."""
    drugs = lexicon.drugs()
    families = {drugs[name[5:]].family for name in concepts(correction.question) if name.startswith("drug:")}
    return frozenset(
        name for name in concepts(correction.golden) if name.startswith("drug:any_") and drugs[name[5:]].family in families
    )


def has_dosing(question: str) -> bool:
    """Whether a question asks for a dose."""
    return has_words(question, DOSING)


def _first_sentence(correction: CorrectedAnswer, added: Sequence[str], removed: Sequence[str], others: Sequence[str]) -> str:
    """The expert's call for help; else what forbids what the answer did; else what else it lacked; else a sentence of the expert
    that is clearly meant. A correction of the language has none: it would stand before every answer."""
    golden = correction.golden
    if "other_language" in correction.forbids():
        return ""
    taken_out = {*removed, *(MEDICINE if set(MEDICINE) & set(correction.forbids()) else ())}
    if "act:stop_verb" in concepts(correction.question):  # "may I stop?" is answered by "do not stop", whatever else was added
        taken_out.add("stops_medicine")
    wanted = [act for act in correction.golden_acts if act.kind in taken_out and act.polarity == "negated"]
    lacked = [act for kind in added for act in correction.golden_acts if act.kind == kind and act.polarity == "directive"]
    grave = {"urges_care_now", "refuses"} & set(added)
    urgent = [act for act in lacked if act.kind == "urges_care_now"]
    lacked = [act for act in lacked if act.kind != "home_care"]  # one of many good ways

    def sentences(acts: Sequence[Act]) -> list[tuple[int, int]]:
        return [lexicon.sentence_at(golden, act.start) for act in acts]

    new = added_sentences(correction)
    if urgent:  # of an emergency, only the call for help stands first
        spans = sentences(urgent)
    else:
        again = [span for span in new if _comes_back(golden[slice(*span)])]
        fresh = _unlike(correction, new)
        spans = [*sentences(lacked if grave else ()), *sentences(wanted), *_recurring(correction, others), *sentences(lacked)]
        spans += [*again, *(fresh if len(fresh) == 1 else ())]
    for start, end in sorted(spans, key=lambda span: _NAMES_RELATIVE.search(golden, *span) is not None):
        sentence = " ".join(golden[start:end].split())
        # A placeholder of the scrubber is about one person.
        if (start, end) in new and 4 <= len(sentence) <= MOST_SENTENCE and "[" not in sentence:
            return sentence
    return ""


def added_sentences(correction: CorrectedAnswer) -> list[tuple[int, int]]:
    """The expert's sentences that the corrected answer did not have."""
    original = _letters(correction.original)
    return [span for span in lexicon.sentences(correction.golden) if _letters(correction.golden[slice(*span)]) not in original]


def _unlike(correction: CorrectedAnswer, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without those that only say a sentence of the corrected answer in other words."""
    known = [correction.original[slice(*span)] for span in lexicon.sentences(correction.original)]
    if not spans or not known:
        return list(spans)
    likeness = ngram_vectors([correction.golden[slice(*span)] for span in spans]) @ ngram_vectors(known).T
    return [span for span, like in zip(spans, likeness.max(axis=1).tolist(), strict=True) if like < REWORDED]


def _recurring(correction: CorrectedAnswer, others: Sequence[str]) -> list[tuple[int, int]]:
    """The added sentence that most answers of experts to such questions have, too."""
    spans, known = added_sentences(correction), [_letters(answer) for answer in others]
    counts = [sum(_letters(correction.golden[slice(*span)]) in answer for answer in known) for span in spans]
    most = max(counts, default=0)
    return [spans[counts.index(most)]] if most * 2 > len(known) and counts.count(most) == 1 else []


def _comes_back(sentence: str) -> bool:
    return _AGAIN.search(sentence) is not None and _TIME.search(sentence) is not None


def _letters(text: str) -> str:
    return re.sub(r"\W+", "", text.casefold())
