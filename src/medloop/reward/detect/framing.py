"""How a text speaks of a danger: as a present state, or as information, history, a case already seen, or a story.

    is_aside("what are the warning signs of a stroke?", ..., zh=False)      -> True: nobody has one
    is_aside("my mother's face droops, what is it?", ..., zh=False)         -> False

A red flag or a number that is only mentioned does not make a question urgent. English is judged by the sentence of the mention;
a Chinese question is judged whole, because titles and run-on sentences carry the frame at either end. The n-gram model does not
understand "no" and "last year", so `frame_flags` also returns the text without the flags that do not count: that is what the
model reads and is trained on.
"""

import re
from bisect import bisect_right
from functools import lru_cache
from typing import Final, NamedTuple

from medloop import lexicon
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import CACHE_SIZE

_STORIES = r"novel|film|movie|tv show|sitcom|video ?game|song|joke|meme|essay|quiz|homework|exam question|crossword|lyrics"
_INFORMATION: Final = lazy_pattern(
    r"\b(?:what (?:is|are|does|do|causes?|would|happens|counts)|how (?:do|does|did|is|are|common|likely|often|to|can)"
    r"|(?:warning )?signs? (?:and symptoms )?of|symptoms? of|causes? of|risks? of|difference between|explain|meaning of"
    r"|definition|lecture|revision|leaflet|poster|first aid course|article|documentary|podcast|news|statistics|in general"
    r"|generally|hypothetical\w*|what if)\b"
)
_PERSON: Final = lazy_pattern(
    r"\b(?:i|i'm|im|i've|ive|my|me|mine|he|he's|she|she's|his|her|him|they're|our|we|patient|pt|y/?o|yo|wife|husband|baby|child"
    r"|toddler|mum|mom|dad|mother|father|son|daughter|gran|grandma|grandad|friend|neighbour|neighbor|colleague"
    r"|\d+[- ](?:years?|months?|weeks?|days?)[- ]old)\b"
)
# When or where it happened is no story: "after the movie my son ...", "he collapsed doing homework".
_STORY: Final = lazy_pattern(
    r"(?<!after the )(?<!after a )(?<!during the )(?<!during a )(?<!at the )(?<!watching the )(?<!watching a )(?<!doing )"
    rf"(?<!doing his )(?<!doing her )(?<!before the )(?<!singing a )\b(?:{_STORIES})s?\b"
)
_PAST: Final = lazy_pattern(
    r"\b(?:(?:years?|months?) ago|last (?:year|summer|winter|spring|autumn|month)|in (?:19|20)\d\d|back in|used to|when i was"
    r"|previously|history of|recovered|was (?:treated|discharged|diagnosed|ruled out)|has been (?:treated|ruled out)"
    r"|(?:came|come) back (?:normal|clear|fine)|all clear|follow[- ]?up|check[- ]?up|doctors? (?:says?|said)"
    r" (?:it|it's|that|the|my))\b"
)
_NOW: Final = lazy_pattern(
    r"\b(?:now(?! (?:all |fully |well|fine|better|ok\b|okay|normal|gone|recovered|controlled|healthy))|again"
    r"|today|tonight|currently|at the moment|this (?:morning|afternoon|evening)|since (?:this|last night|yesterday)"
    r"|suddenly|just (?:started|now)|(?:\d+|few|an?|one|two|three|half an) ?(?:minutes?|mins?|hours?|hrs?|h)|getting worse"
    r"|keeps?)\b"
)
_ZH_INFORMATION: Final = lazy_pattern(
    r"什么是|是什么(?:病|意思|原因引起)|(?:症状|表现|原因|病因|危害|后遗症|并发症|前兆|类型)(?:有哪些|有什么|是什么|都有)"
    r"|有(?:哪些|什么)(?:症状|表现|危害|原因|后遗症|前兆)|(?:怎么|如何|怎样)(?:预防|护理|避免|辨别|区分|鉴别|急救|保养)"
    r"|饮食|食疗|偏方|吃什么(?:好|食物|水果|东西|药|比较)|(?:能|可以|可不可以|能不能)吃|(?:哪家|哪个|哪里)(?:医院|地方|治)"
    r"|多少钱|费用|(?:能|可以)(?:治好|治愈|根治|彻底|康复)|什么药|药.{0,4}(?:效果|功能|副作用)|会(?:遗传|传染)|注意(?:什么|哪些|事项)|影响(?:怀孕|生育|寿命)"
    r"|电影|小说|电视剧|游戏|论文|考试|考题|科普|新闻|假如|如果(?:发生|出现|有人)"
)
_ZH_SEEN: Final = lazy_pattern(
    r"确诊|已经?(?:手术|治疗|出院|好了|痊愈)|出院|术后|手术后|手术已|做了.{0,6}手术|复查|后遗症|恢复期|康复|病史|诊断(?:为|是|出)"
    r"|(?:[一二两三四五六七八九十几多\d]+)[多来]?年(?:了|前|多|来|以来|病史)|去年|前年|小时候|曾经|以前|平时"
    r"|[几\d两三四五六]+个?多?月前|间断|反复(?!吐血|呕血|抽搐|抽筋|昏)|长期|一直(?!在?(?:哼|哭|吐|呕|流血|出血|冒汗|喘|抽|发高?烧|高烧|高热|烧|昏|不吃奶|不尿|没尿|便血|咳血|胸口?[疼痛]|肚子剧))|经常|时常|有时|偶尔"
)
_ZH_NOW: Final = lazy_pattern(
    r"突然|突发|忽然|刚才|刚刚|今天|今早|今晚|昨天|昨晚|现在(?!都?(?:好了|恢复|正常|没事|想|打算|能|可以|还要|已经好|控制))"
    r"|正在|此刻|目前|小时|分钟|不停|止不住|越来越|加重|不省人事|叫不醒"
    r"|急急|救命|快"
)
_ZH_TREATED: Final = lazy_pattern(  # a doctor has seen it: what remains is a question about a disease, however suddenly it began
    r"送.{0,3}医院|带到医院|去.{0,2}医院.{0,6}检查|(?:医生|大夫)(?:说|告诉|诊断|检查|给)|检查(?:出|是|结果|发现|后|才)|住院|确诊|患上了?"
)
_ZH_DREAD: Final = lazy_pattern(r"(?:怕|担心|万一|听.{0,3}说)[^,，。;；]{0,16}(?:晕倒|昏迷|中风|猝死|发作|出血|心梗|抽搐)")


# Conditions that can kill within hours. Their name alone is no alarm ("what is a stroke?"), but such a question is not routine.
_GRAVE: Final = lazy_pattern(
    r"\b(?:heart attacks?|cardiac arrest|stroke|brain (?:bleed|ha?emorrhage)|pulmonary embol\w+|blood clots?|dvt|aneurysms?"
    r"|dissection|sepsis|septic|meningitis|meningococc\w+|encephalitis|pancreatitis|necroti[sz]ing|gangrene|hypox\w+"
    r"|(?:respiratory|lung|liver|kidney) failure|collapsed lung|pneumothorax|anaphyla\w+|overdos\w+|poison(?:ed|ing)|suicid\w+"
    r"|self[- ]harm|seizures?|coma|unconscious|ketoacidosis|dka|intensive care|icu|ventilator|ectopic|pre-?eclampsia|eclampsia"
    r"|ruptured?|perforat\w+|internal bleeding|ha?emorrhage|amputat\w+|rabies|tetanus|botulism|carbon monoxide|torsion"
    r"|cauda equina|guillain|heat ?stroke|appendicitis|gunshot|stab(?:bed|bing)|snake ?bite|drown\w*|chok(?:ed|ing)"
    r"|electrocut\w+|(?:i'?m|i am|is|he'?s|she'?s|be) dying(?! (?:to|for|of)\b))\b"
)
_ZH_GRAVE: Final = lazy_pattern(
    r"心梗|猝死|脑出血|蛛网膜|肺栓塞|夹层|败血症|脑膜炎|胰腺炎|气胸|休克|中毒|自杀|昏迷|宫外孕|大出血|胃出血|内出血|吐血|呕血|穿孔"
)
# A quiz: its stem and two options, or a task about a passage that is given. A single word ("json", "（ ）", 翻译成) is none:
# whoever is frightened also asks for a translation or a list.
_STEM: Final = lazy_pattern(
    r"\bwhich (?:one )?of the following\b|(?:以下|下列)(?:哪|各项|选项|说法|关于|有关|属于|不属于|不正确)|[(（]\s*[)）]"
)
_OPTIONS: Final = lazy_pattern(r"(?:^|[\s。?？:：)）])\(?a[.)）、:：,，].{1,400}?(?:^|[\s。;；,，])\(?b[.)）、:：,，]", re.DOTALL)
_PASSAGE: Final = lazy_pattern(
    r"^\W*(?:in this task,? you(?:'re| are) given|task definition\b|given an? (?:passage|paragraph|dialogue)\b|在这个任务中)"
)
# Somebody speaks of themselves, their own or now, whatever else is asked.
_OWN: Final = lazy_pattern(
    r"\b(?:i|i'm|im|i've|ive|me|my|mine|our|us|we|now|right now|help)\b(?! you)"
    r"|[我俺咱]|老公|老婆|宝宝|爸|妈|[爷奶]奶?|孩子|邻居|朋友|家里|现在|刚才|刚刚|正在|救命|怎么办|急"
)
# A question about a disease by its name, in one plain sentence: no complaint, no time, nobody who is ill.
_DISEASES = (
    r"diseases?|disorders?|syndromes?|cancers?|tumou?rs?|diabetes|hypertension|deficiency|dystrophy|asthma|arthritis|adhesions"
    r"|\w{3,}(?:itis|osis|emia|aemia|oma|pathy|uria|trophy|plasia)"
)
_GENERAL: Final = lazy_pattern(
    r"^(?:what (?:is|are|is \(are\)) (?:the )?(?:(?:symptoms|treatments?|complications|genetic changes|causes|outlook|stages)"
    r" (?:of|for|related to) )?|what causes |what research (?:\(or clinical trials\) )?is being done for "
    r"|how many people are affected by |who is at risk for |how to (?:prevent|diagnose) |is |do you have information about )"
    rf"(?:(?!(?:with|after|since|when|while|if|and now|started|ago|stop|take|taking)\b)[\w()'-]+ ){{0,6}}?(?:{_DISEASES})"
    r"(?: (?:type )?\w{1,3}| inherited)? ?\??$"
)
_COMPLAINT: Final = lazy_pattern(
    r"\b(?:pain|ach(?:e|es|ing)|hurt\w*|bleed\w*|blood(?!-)|breath\w*|gasp\w*|numb\w*|weak\w*|droop\w*|vomit\w*|fever\w*|rash|swell\w*|blue"
    r"|purple|sweat\w*|faint\w*|collaps\w*|unconscious|stiff\w*|cough\w*|sudden\w*|severe|worst|newborn|infant|throat|crushing)\b"
    r"|痛|疼|麻|晕|吐|血(?![压糖脂])|汗|紫|喘|呼吸|憋|闷|烧|热|抽|肿|歪|没力|无力|不清|昏|剧烈|突然|发作|叫不醒|吞|误"
)
_YOU: Final = lazy_pattern(r"\b(?:you|your|someone|somebody)\b(?! have information)")  # "when you lose a finger": somebody did
_ZH_DISEASES = r"[\u4e00-\u9fff]{1,8}(?:病|症(?!状)|炎|癌|瘤|综合征|高血压|高血脂)"
_ZH_GENERAL: Final = lazy_pattern(
    rf"^(?:什么是{_ZH_DISEASES}|{_ZH_DISEASES}的?(?:症状|表现|病因|危害|前兆|治疗方法|类型|传播途径)(?:有哪些|有什么|是什么|都有哪些?)|{_ZH_DISEASES}的?症状及治疗(?:方法)?)[?？]?$"
)
_ZH_PERSON: Final = lazy_pattern(
    r"[我俺咱他她]|你好|您好|医生|大夫|岁|孩子|宝宝|老公|老婆|患者|家人|父亲|母亲|爸|妈|现在|最近|今天|昨"
)
_ZH_BEFELL: Final = lazy_pattern(r"[踩扎摔噎哑咬烫割撞]了?|疙瘩|吞不|打针|[针片]")
_SENTENCE: Final = lazy_pattern(r"[^.!?;。！？；\n]+[.!?;。！？；\n]*")
_CLAUSE_END: Final = lazy_pattern(
    r"[,.;:!?，。；：！？\n]| (?:but|however|though|just|only|and (?:now|then|the|my|his|her)) |但|可是|不过|只是|就是|现在|今天"
)

_CUE: Final = lazy_pattern(  # the words of a denial, up to what it denies
    r"(?:\b(?:no|not|never|nor|neither|without|denies|denied|don't|doesn't|didn't|hasn't|haven't|hadn't|isn't|aren't|wasn't|am|is|are"
    r"|was|do|does|did|have|has|had|having|been|any|a|an|the) +)+$|(?:从来?|并|也|都)?(?:没有?|无|未|不是|否认有?)$"
)


class FramedText(NamedTuple):
    """The red flags that count, the sentences of the folded text, and the text without the flags that do not count."""

    flags: tuple[lexicon.Mention, ...]
    sentences: tuple[tuple[int, int], ...]
    visible: str  # of the same length: blanks stand for what is hidden


def frame_flags(text: str, folded: str, zh: bool) -> FramedText:
    """A denial is hidden up to the end of its clause, an aside only as a flag: the words around it say what is asked."""
    sentences = tuple([match.span() for match in _SENTENCE.finditer(folded)])
    flags, visible = [], text
    for flag in lexicon.find_red_flags(text):
        start, end = flag.start, flag.end
        if flag.negated:
            cue = _CUE.search(folded, max(0, start - 40), start)
            start = cue.start() if cue else start
            clause_end = _CLAUSE_END.search(folded, end)
            end = clause_end.start() if clause_end else len(text)
        elif not is_aside(sentence_around(folded, sentences, flag.start), folded, zh):
            flags.append(flag)
            continue
        visible = visible[:start] + " " * (end - start) + visible[end:]
    return FramedText(tuple(flags), sentences, visible)


def sentence_around(folded: str, sentences: tuple[tuple[int, int], ...], offset: int) -> str:
    index = bisect_right(sentences, (offset, len(folded))) - 1
    return folded[slice(*sentences[index])] if index >= 0 and offset < sentences[index][1] else folded


def names_grave_condition(folded: str, zh: bool) -> bool:
    return bool((_ZH_GRAVE if zh else _GRAVE).search(folded))


def is_quiz(folded: str) -> bool:
    """Whether a text is a quiz with options or a task about a passage, and nobody speaks of themselves, their own or now."""
    framed = _PASSAGE.search(folded) or (_STEM.search(folded) and _OPTIONS.search(folded))
    return framed is not None and _OWN.search(folded) is None


def is_general(folded: str, zh: bool) -> bool:
    """Whether a question names a disease and nobody who has it: "what are the symptoms of arthritis?".

    A complaint ("胸口剧痛是什么病") is a patient's own question, and what can kill within hours is never taken for a textbook's.
    """
    text = folded.strip()
    if _COMPLAINT.search(text) or _OWN.search(text) or names_grave_condition(text, zh):
        return False
    if zh:
        return bool(_ZH_GENERAL.search(text)) and not _ZH_PERSON.search(text)
    return bool(_GENERAL.search(text)) and not _PERSON.search(text) and not _YOU.search(text)


def names_person(folded: str, zh: bool) -> bool:
    """Whether a text speaks of a person, or in Chinese of what befell one: the person is often left out there."""
    return bool((_ZH_PERSON if zh else _PERSON).search(folded) or (zh and _ZH_BEFELL.search(folded)))


def is_aside(sentence: str, whole: str, zh: bool) -> bool:
    """Whether a sentence (folded) speaks of a danger that nobody present has now; `whole` is the text around it."""
    return _is_aside_zh(whole) if zh else _is_aside_en(sentence)


@lru_cache(maxsize=CACHE_SIZE)  # a text has many flags
def _is_aside_zh(whole: str) -> bool:
    if _ZH_DREAD.search(whole) or (_ZH_TREATED.search(whole) and _ZH_INFORMATION.search(whole)):
        return True
    if _ZH_NOW.search(whole):
        return False
    return bool(_ZH_INFORMATION.search(whole) or _ZH_SEEN.search(whole))


@lru_cache(maxsize=CACHE_SIZE)  # and so has a sentence without a full stop
def _is_aside_en(sentence: str) -> bool:
    if _STORY.search(sentence):
        return True
    if _INFORMATION.search(sentence) and not _PERSON.search(sentence):
        return True
    return bool(_PAST.search(sentence) and not _NOW.search(sentence))
