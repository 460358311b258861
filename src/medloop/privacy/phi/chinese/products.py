"""What is taken, sold or planted: brands and herbs that the network takes for names, by what stands beside them.

A list of brands is never complete. These places are the same for all of them: an enumeration of drugs, the form of a drug or a
question about its effect behind, the word for an alias before. A role, a title, a sex or an age says more than all of these.
"""

# ruff: noqa: E501  patterns in long lines are easier to read than in pieces
from medloop.privacy.phi.allowed import is_term
from medloop.privacy.phi.chinese.cues import TITLED_BEHIND
from medloop.privacy.phi.chinese.words import is_given, surname_length
from medloop.privacy.phi.guards import lazy_pattern

_FORM = "颗粒|胶囊|口服液|滴丸|滴眼液|眼药水|软膏|乳膏|凝胶|冲剂|注射液|喷[剂雾]|含片|(?:肠溶|缓释|分散|咀嚼|泡腾)片|糖浆|合剂|栓剂|贴膏|洗剂|浓缩丸|疫苗|奶粉|面膜"
_VERBS = "吃服用喝买带开拿要和的给取领配换停忘嚼吞含打输涂抹擦找问说在有没不又也都已把被让叫请送是把从对"
# The form of a drug, with no more than two characters of its name between; what is asked of a drug or a treatment.
_BEHIND = lazy_pattern(
    rf"[^{_VERBS}\W\da-zA-Z]{{0,2}}(?:{_FORM})"
    rf"|[^{_VERBS}\W\da-zA-Z]{{0,3}}[这那][个种款]?药(?![店房师费])"
    rf"|(?:(?![{_VERBS}])[一-鿿]){{0,4}}药(?:好吗|好用吗|怎么样|有用吗|管用吗|有效吗)"
    "|的?(?:副作用|功效|药效|成分|用法用量|说明书|不良反应|好处|化学名|营养|药用)(?:[有是和与?,、。！!价成]|$)|牌|也[叫称](?![小老阿他她它我你们人医大护家孩妈爸爷奶姐妹哥弟父母患病无有未没不曾常夜近])"
    "|病(?![人房历情例床号假区程了重倒故愈危逝亡死退休得发着过后前已又也就在都还很好几起])|针(?:剂|[和与是的有怎]|,|$)|属[一-鿿]{0,3}(?:水果|植物|药|草本)"
    r"|[一-鿿]{0,3}\(《"
)
_ALIAS = lazy_pattern('(?:俗称|又称|商品名|通用名|药名|[药剂片素病症膏丸草]。?,?也[叫称])[为是:]?[“"《(]?[一-鿿]?$')
_PERSON_BEFORE = lazy_pattern(
    "(?:患者|病人|患儿|产妇|家属|姓名:?|医生:?|护士:?|大夫|妻子|爱人|丈夫|老公|老婆|同事|邻居|[妻夫父母爷奶爸妈姐妹哥弟儿女友]|\\d床)$"
)
_CUE = lazy_pattern(
    "(?:药品|药物|中药|西药|药材|品种|抗生素|抗菌素|保健品|偏方|方剂|处方|别名)(?![^。！？\n]{0,4}(?:医生|医师|药师|护士|大夫|签))[^。！？\n]{0,6}$"
)
_ITEM_BEFORE = lazy_pattern(r"(?P<item>[一-鿿]{2,7})[、.]$")
_ITEM_BEHIND = lazy_pattern(r"[、.](?P<item>[一-鿿]{2,7})(?=[、.。]|等|$)")
_BEFORE_GIVEN = "子小一"  # 刘(子)轩
_MOST = 12  # items of an enumeration that are looked at to each side
_FEW = 2  # neighbours from which it is an enumeration


def is_product(text: str, start: int, end: int) -> bool:
    """Whether characters that may be a name are a drug, a herb or a brand by their place in a folded text."""
    if TITLED_BEHIND.match(text, end) or _PERSON_BEFORE.search(text, max(0, start - 4), start):
        return False
    if "牌" in text[start + 1 : end] or (_BEHIND.match(text, end) and not _is_usual(text[start:end])):
        return True
    return bool(_ALIAS.search(text, max(0, start - 8), start)) or _is_listed_with_drugs(text, start, end)


def _is_usual(name: str) -> bool:
    """A surname and characters of given names: a brand that is called like a person counts as one."""
    surname = surname_length(name, 0)
    given = name[surname:]
    return surname > 0 and is_given(given[1:] if len(given) == 2 and given[0] in _BEFORE_GIVEN else given)


def _is_listed_with_drugs(text: str, start: int, end: int) -> bool:
    """Whether it stands in an enumeration behind a word for drugs, or between terms: 药品如(万珂).力比泰.多吉美."""
    first, last, items = start, end, list[tuple[int, int]]()
    while len(items) < _MOST and (item := _ITEM_BEFORE.search(text, max(0, first - 8), first)):
        items.append(item.span("item"))
        first = item.start("item")
    has_before = bool(items)
    while len(items) < 2 * _MOST and (item := _ITEM_BEHIND.match(text, last)):
        items.append(item.span("item"))
        last = item.end("item")
    people = sum(_is_usual(text[slice(*item)]) for item in items)
    if len(items) < _FEW or (surname_length(text, start) and 2 * people >= len(items)):  # 处方:王芳、李娟、赵敏
        return False
    terms = sum(is_term(text, (*item, "NAME")) for item in items)
    return bool(_CUE.search(text, max(0, first - 14), first)) or (has_before and terms > 0 and 3 * terms >= len(items))
