"""Chinese names that the network does not know: peoples with other names, foreign names, rare surnames, nicknames, signatures."""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
import re
from collections.abc import Iterator

from medloop.privacy.phi import lists
from medloop.privacy.phi.allowed import is_term
from medloop.privacy.phi.chinese.pinyin import PINYIN_SURNAMES, count_syllables
from medloop.privacy.phi.chinese.words import (
    GIVEN,
    RARE_SURNAMES,
    WORD_SURNAMES,
    blocked_words,
    is_given,
    is_pair,
    is_seen,
    ordinary_words,
    surname_length,
)
from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.lists import NAMES, ORDINARY, is_listed, medical_words, tier
from medloop.privacy.phi.rules import Finder, spans_where

_HAN = "\u4e00-\u9fff"
_DOT = "·•・‧∙⋅"
_SURNAMES = lists.lines("surnames_zh.txt")
_SINGLE = "".join(name for name in _SURNAMES if len(name) == 1) + RARE_SURNAMES
_START = r"(?:^|(?<=[。！？!?;\n:,、\s(（\"“@]))"
_DOTTED = lazy_pattern(
    rf"(?P<name>[{_HAN}]{{1,6}}(?:-[{_HAN}]{{1,6}})?(?:[{_DOT}][{_HAN}]{{1,8}}){{1,3}})(?=[,。;:、()（）\s\"”]|$)"
)
_NOT_DOTTED = lazy_pattern("综合征|综合症|病|征|试验|现象|反应|手术|评分|法$|量表|分级|骨折|疗法|[药片汤丸散膏方饮]")
# Parts of the names of other peoples of China; one of them in a run of such syllables is enough.
_PEOPLES = (
    "买买提|麦麦提|艾合买提|热西提|吐尔|古丽|买合|木提|提江|依江|别克|汗孜|尼亚孜|努尔|阿卜|阿不|阿依|帕提|再娜|玉素|卡迪|艾尔|肉孜|热依|迪力|木拉|米热|艾力|巴依|哈力|吾买|萨拉|沙吾|赛买"
    "|卓玛|央金|次仁|次旺|扎西|平措|顿珠|旺堆|多吉|拉姆|格桑|丹增|洛桑|仁青|罗布|边巴|达瓦|尼玛|普布|巴桑|白玛|德吉|曲珍|加措|仁增|索朗|贡布|才让|才旦|拉毛|桑吉|嘉措|旦增|强巴"
    "|巴特尔|其木格|格日勒|乌云|斯琴|萨仁|图雅|娜仁|阿拉坦|呼格|吉勒|其其格|朝鲁|巴雅尔|孟和|敖登|宝音|哈斯|额尔敦|布和|乌日|苏日|塔娜|特木|那日|阿古拉|牧仁"
    "|吉克|阿木|惹古|曲比|沙马|吉木|尔古|日哈|木呷|阿牛|阿果|莫色|石一|拉者|阿西|克惹|阿嘎|依莫|尔洛|古哈"
)
_SYLLABLE = (
    "阿卜杜买麦提吐尔逊古丽热西合木江别克汗孜尼亚努依帕再娜玉素甫卡迪艾肉力拉米巴哈吾萨沙赛买卓玛央金次仁旺扎平措顿珠堆多吉姆格桑丹增洛青罗布边达瓦普白德曲珍加索朗贡才让旦毛嘉强特其日勒乌云斯琴"
    "仁图雅坦呼朝鲁雅孟和敖登宝音斯额敦苏塔牧克惹比马呷牛果莫色石一者嘎洛孜排则来依夏热汗尔那娅甫伊明都地里"
)
_PEOPLE = lazy_pattern(rf"{_START}(?P<name>[{_SYLLABLE}]{{3,9}})")
_PEOPLE_PART = lazy_pattern(_PEOPLES)
_PARTS = sorted({part for line in lists.lines("peoples_zh.txt") for part in line.split()}, key=lambda part: (-len(part), part))
_PART_STARTS = "".join(sorted({part[0] for part in _PARTS}))  # looked at first: hundreds of parts cost more
_OF_PARTS = lazy_pattern(
    rf"(?=[{_PART_STARTS}])(?P<name>(?:{'|'.join(_PARTS)})(?:(?:{'|'.join(_PARTS)}){{1,3}}(?:江|汗|莫|克孜|别克|罕)?|江|汗|克孜|别克)|(?:{'|'.join(part for part in _PARTS if len(part) > 2)}))"
)
_DRUG_END = lazy_pattern("[坦汀唑普胺酮啶嗪松定宁素酸钠钾钙酯醇肽辛星韦净康泊芬隆仑喹苷酚因灵片抗]$")
# A surname and one or two characters of given names at the beginning of a sentence, or as a signature at its end.
_RARE = lazy_pattern(rf"{_START}(?P<name>[{RARE_SURNAMES}{WORD_SURNAMES}][{GIVEN}]{{2}})")
_SIGNATURE = lazy_pattern(rf"[。！？!?;\n)）] ?(?P<name>[{_SINGLE}{WORD_SURNAMES}][{_HAN}]{{1,2}})\s*$")
_TITLED = lazy_pattern(
    rf"(?:^|[,。;:、\s(（]|告知|通知|联系|电话|转告|请|找|由|问|给|经|向|跟|和|叫|让|遵)(?P<name>[{_SINGLE}{WORD_SURNAMES}][{_HAN}]{{1,2}})(?=医生|医师|大夫|主任|护士|教授|护师|药师|技师|老师|女士|先生|同学|奶奶|爷爷|阿姨|阿婆|大爷|大妈|伯伯|叔叔|师父|法师|道长|神父|修女)"
)
_ANY_TITLE = lazy_pattern(
    "医[生师]|大夫|主任|护[士师]|教授|[药技老]师|女士|先生|同学|奶奶|爷爷|阿[姨婆]|大[爷妈]|伯伯|叔叔|师父|法师|道长|神父|修女"
)
_NICKNAME = lazy_pattern(
    rf"{_START}(?P<name>[老小阿大][{_SINGLE}](?:头|哥|姐|子|仔|婆|伯|叔)(?!孢)|[老小][{_SINGLE}](?=[,。、\s说问又没被的来打吃喝今昨在是让])|[{_SINGLE}](?:姐|哥|叔|姨|婶|嫂|伯|总|工)(?=[,。、\s说问又没有被的来打吃喝今昨在是让叫把])|[{_SINGLE}](?:阿婆|阿公|阿姨|大娘|大叔|大姐|大哥|大妈|大爷|大伯|老太|老爷子|老汉|瘸子|胖子|麻子|奶奶|爷爷|师傅|老板|家媳妇|家[的老大小][二三]?|掌柜|寡妇|木匠|铁匠|屠夫|裁缝|聋子|秃子|驼背|拐子|老头|婆婆|嫂子|支书|村长|老[大二三四五六])"
    rf"|[大二三四五六七八][嫂婶叔姨姑舅爷哥姐](?:子|妈|娘)?(?=说|问|又|来|打电话|反映)|[小大][二三四五六七八九](?:子|儿|妹|弟)?(?=[吞咳发又被没说摔拉吃喝打])"
    rf"|阿[{GIVEN}](?:仔|妹|哥|姐|嫂|婆|伯|叔)(?!氏)|阿[{GIVEN}](?=[,。、\s说问又没有被的来打吃喝今昨在是让叫把]))"
)
_HIDDEN = lazy_pattern(
    rf"(?<![{_HAN}])(?P<name>[{_SINGLE}](?:某{{1,2}}(?=[,。、（( \d]|$)|[XxＸ×*＊○〇]{{1,2}}[{_HAN}]?|[{_HAN}][XxＸ×*＊○〇]))(?![A-Za-z])"
)
_HANDLE = lazy_pattern(rf"@(?P<name>[{_HAN}A-Za-z0-9_\-]{{2,20}})(?![\w.]*@|\.[a-z])")
_CAP = r"[A-ZÀ-ÖØ-Þ][A-Za-zß-öø-ÿ\u0100-\u024f'’]{1,20}"
_LATIN = lazy_pattern(
    rf"(?<![A-Za-z])(?P<name>{_CAP}(?:(?: (?:da|de|del|van|von|al|bin|ibn|binti|el|la|dos|der))*[ \-](?:{_CAP}|[A-Z]\.)(?:-[a-z]{{2,8}})?){{1,4}})(?![A-Za-z])"
)
_ONE_LATIN = lazy_pattern(
    rf"{_START}(?P<name>[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ\u0100-\u024f'’]{{2,20}})(?=[,，]? ?(?:今|昨|说|问|诉|来|要|在|是|打|发|咳|术后|产后|吃|又|的|拒|没|刚|已|上周|反映|\d+岁|男|女|先生|女士|小姐|太太))"
)
_CALLED_LATIN = lazy_pattern(
    r"(?:[我他她友]|孩子|儿子|女儿|老[公婆]|英文名)(?:名?叫做?|英文名[叫是:]?) ?(?P<name>[A-Z][a-z]{1,20})(?![A-Za-z])"
)
_WITH_LATIN = lazy_pattern(
    rf"(?<![A-Za-z])(?P<name>(?P<first>{_CAP}) ?[{_SINGLE}])(?=[,。、说的问打来在是今昨又也要诉吃发咳术拒没刚已反 (（]|$)|{_START}(?P<name2>[{_SINGLE}](?P<last>{_CAP}))(?![A-Za-z])"
)
_SPELLED_LATIN = lazy_pattern(r"(?<![A-Za-z])(?P<name>[A-Za-z](?:[ .\-]{1,3}[A-Za-z]){4,20})(?![A-Za-z])")
_SMALL_PINYIN = lazy_pattern(r"(?:^|(?<=[,。;:、\n]))(?P<name>[a-z]{2,8} [a-z]{2,12}(?: [a-z]{2,6})?)(?= ?[\u4e00-\u9fff]| \d)")
_JOINED_PINYIN = lazy_pattern(r"(?<![A-Za-z\d@./_\-])(?P<name>[a-z]{6,18})(?![A-Za-z\d@./_\-])")
_CALLED = lazy_pattern("(?:我是|我叫|名叫|叫|患者|病人|姓名[:：]?|[是有]个) ?$")
_SIGNED_SHORT = lazy_pattern(rf"(?<=[。！!\n]) ?(?P<name>[小老阿][{_SINGLE}])\s*$")
_JAPANESE = "山田 佐藤 铃木 高桥 田中 渡边 伊藤 中村 小林 加藤 吉田 山本 佐佐木 山口 松本 井上 木村 清水 斋藤 山崎 森田 池田 桥本 阿部 石川 前田 藤田 小川 冈田 后藤 长谷川 村上 近藤 石井 坂本 远藤 青木 西村 福田 太田 三浦 藤原 松田 中岛 上野 竹内 金子 中野 原田 和田 宫本 大野 水野 野口 川崎 小野寺"
_TWO = "欧阳|上官|司马|司徒|诸葛|东方|皇甫|慕容|令狐|公孙|夏侯|尉迟|赫连|宇文|长孙|端木|轩辕|申屠|钟离|濮阳|淳于|太史|闻人|独孤|南宫|百里|呼延|东郭|西门|澹台|公冶|宗政|仲孙|鲜于|闾丘|第五|左丘|万俟|拓跋|亓官|司空"
_LONG_SURNAME = lazy_pattern(
    rf"(?P<name>(?:{_JAPANESE.replace(' ', '|')})[{_HAN}]{{1,2}}[{_HAN}]?(?=[{_HAN}]?[,。;:、()\s]|女士|先生|小姐|$)|(?:{_JAPANESE.replace(' ', '|')})(?:太郎|[{_HAN}][子美纪一二郎树也介香奈雄夫]|[{GIVEN}]{{2}})|(?:{_TWO})[{GIVEN}]{{1,2}}|[阮黎范裴邓潘武][氏文][{_HAN}][{GIVEN}]?)"
)
_PET_NAME = lazy_pattern(
    rf"(?:^|[,。;!?:\s]|我家|我们家|你家|邻居家?的?|隔壁)(?P<name>([{_HAN}])\2)(?=爸|妈|奶奶|爷爷|姥|家长|他[爸妈]|她[爸妈]|[吃发咳拉起打吐也又]|的[^时话])"
)
_CHILD_OF = lazy_pattern(rf"(?P<name>[{_SINGLE}][{_HAN}]{{1,2}})之(?:子|女|父|母|妻|夫|双胎|[大小次长])")


def _is_no_word(text: str, start: int, end: int) -> bool:
    name = text[start:end]
    return name not in ordinary_words() and not any(is_pair(text, index) for index in range(start, end - 1))


def _is_no_term(text: str, start: int, end: int) -> bool:
    return not is_term(text, (start, end, "NAME"))


def _find_dotted(text: str) -> Iterator[tuple[int, int]]:
    if any(dot in text for dot in _DOT):
        yield from spans_where(
            _DOTTED, text, lambda start, end: not _NOT_DOTTED.search(text[start:end]) and _is_no_term(text, start, end)
        )


def _find_peoples(text: str) -> Iterator[tuple[int, int]]:
    def is_one(start: int, end: int) -> bool:
        name = text[start:end]
        return bool(_PEOPLE_PART.search(name)) and not _DRUG_END.search(name) and _is_no_term(text, start, end)

    if _PEOPLE_PART.search(text):
        yield from spans_where(_PEOPLE, text, is_one)
    yield from spans_where(_OF_PARTS, text, lambda start, end: _is_no_term(text, start, end) and _is_no_word(text, start, end))


def _find_rare(text: str) -> Iterator[tuple[int, int]]:
    def is_name(start: int, end: int) -> bool:
        return is_given(text[start + 1 : end]) and _is_no_word(text, start, end) and not is_pair(text, end - 1, often=True)

    yield from spans_where(_RARE, text, is_name)


def _find_signature(text: str) -> Iterator[tuple[int, int]]:
    yield from spans_where(_SIGNATURE, text, lambda start, end: _is_no_word(text, start, end) and _is_no_term(text, start, end))
    yield from (match.span("name") for match in _SIGNED_SHORT.finditer(text))


def _find_titled(text: str) -> Iterator[tuple[int, int]]:
    def is_name(start: int, end: int) -> bool:
        is_free = _is_no_word(text, start, end) or is_given(text[start + 1 : end])
        return end - start > 1 and is_free and not _NOBODY.search(text[start:end])

    if _ANY_TITLE.search(text):
        yield from spans_where(_TITLED, text, is_name)


_NOBODY = lazy_pattern("[床向的位名个科室院年轻各每这那其他她我你们些家属患者病人老主任值班上级责任]")


def _find_nicknames(text: str) -> Iterator[tuple[int, int]]:
    words = ordinary_words()
    yield from spans_where(
        _NICKNAME, text, lambda start, end: text[start:end] not in words and not is_pair(text, start, often=True)
    )


def _find_hidden(text: str) -> Iterator[tuple[int, int]]:
    yield from spans_where(_HIDDEN, text, lambda start, _: not is_pair(text, start, often=True))  # 包括X光


def _find_handles(text: str) -> Iterator[tuple[int, int]]:
    if "@" in text:
        yield from (match.span("name") for match in _HANDLE.finditer(text))


def _is_foreign_word(word: str) -> bool:
    """A name, or a word that is neither ordinary nor of medicine."""
    lower = word.lower()
    return lower not in medical_words() and (is_listed(lower, NAMES) or tier(lower) not in ORDINARY)


def _find_latin(text: str) -> Iterator[tuple[int, int]]:
    """In a text with Chinese characters."""
    for match in _LATIN.finditer(text):
        words = re.findall(rf"{_CAP}", match["name"])
        if not all(_WRITTEN_AS_NAME.fullmatch(word) or (word.isupper() and _is_name_in_capitals(word)) for word in words):
            continue  # HMG-CoA, Schatzker II
        listed = any(is_listed(word.lower(), NAMES) or (len(word) > 2 and count_syllables(word.lower())) for word in words)
        is_name = all(map(_is_foreign_word, words)) and (listed or not (match["name"].isupper() or "-" in match["name"]))
        first_listed = is_listed(words[0].lower(), NAMES) and words[0].lower() not in medical_words()
        is_name = is_name or (
            first_listed and not _LATIN_TERM.search(match["name"]) and "\u4e00" <= text[match.end() : match.end() + 1] <= "\u9fff"
        )
        if is_name and not _TERM_BEHIND.match(text, match.end()):
            yield match.span("name")
    for match in _ONE_LATIN.finditer(text):
        if _is_foreign_word(match["name"]) and not _TERM_BEHIND.match(text, match.end()):
            yield match.span("name")
    for match in _CALLED_LATIN.finditer(text):
        if _is_foreign_word(match["name"]):
            yield match.span("name")
    for match in _WITH_LATIN.finditer(text):
        word = match["first"] or match["last"]
        if word[1:] != word[1:].lower():
            continue
        word = word.lower()
        if word not in medical_words() and (is_listed(word, NAMES) or tier(word) not in ORDINARY):
            yield match.span("name" if match["first"] else "name2")


_ROMAN = lazy_pattern("[IVX]+")
_WRITTEN_AS_NAME = lazy_pattern(r"[A-ZÀ-ÖØ-Þ]['’]?[a-zß-öø-ÿ\u0100-\u024f'’]*(?:[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ\u0100-\u024f]{2,})*")


def _is_name_in_capitals(word: str) -> bool:
    lower = word.lower()
    return (is_listed(lower, NAMES) or bool(count_syllables(lower))) and not _ROMAN.fullmatch(word)


_TERM_BEHIND = lazy_pattern(
    r" ?(?:综合征|综合症|病|征|试验|评分|分级|分期|量表|法|术|反应|现象|骨折|瘤|线|环|管|细胞|[Ⅰ-Ⅻ\d]|syndrome|disease|score|test|sign)"
)


_LATIN_TERM = lazy_pattern(r"\b(?i:syndrome|disease|score|test|sign|scale|grade|stage|type|class|criteria|index|method)\b")


def _find_small_pinyin(text: str) -> Iterator[tuple[int, int]]:
    """At the beginning of a sentence and right before Chinese characters: no English word stands there."""
    for match in _SMALL_PINYIN.finditer(text):
        surname, *given = match["name"].split()
        if surname in PINYIN_SURNAMES and all(map(count_syllables, given)) and sum(map(count_syllables, given)) < 3:
            yield match.span("name")
    for match in _JOINED_PINYIN.finditer(text):
        word = match["name"]
        if (
            tier(word) not in ORDINARY
            and word not in medical_words()
            and _is_pinyin_name(word, bool(_CALLED.search(text, max(0, match.start() - 8), match.start())))
        ):
            yield match.span("name")


def _is_pinyin_name(word: str, called: bool) -> bool:
    """A surname and two syllables without a space; one syllable is enough where somebody is called so."""
    given = (count_syllables(word[cut:]) for cut in range(2, 7) if word[:cut] in PINYIN_SURNAMES and word[cut:])
    return any(syllables == 2 or (syllables == 1 and called) for syllables in given)


def _find_spelled(text: str) -> Iterator[tuple[int, int]]:
    yield from (match.span("name") for match in _SPELLED_LATIN.finditer(text))


_CLINICAL = (
    "术后|产后|病后|咯血|咳|血[压糖钾钠脂氧]|头[晕痛疼]|发[烧热]|胸[痛闷]|腹[痛泻胀部]|呕|吐|拉肚子|摔|复查|转氨酶|骨密度|肾功|肝功|甲功|今[天晨早日晚]|昨[天晚日夜]|上周|说|问|诉|要求|拒绝|出院|入院|住院|转来"
    "|没来|没吃|疫苗|过敏|体温|心[率电]|尿|大便|化疗|放疗|透析|手术|膝|腰|月经|怀孕|产检|孕|顺产|剖|妈[,，]|[他她]爸|[他她]妈|高热|低热|雾化|刀刺|车祸|误食|值班|肺|胃|肝|肾"
    "|的(?:血|尿|报告|CT|片子|病理|检查|药|膝|腿|老伴|儿子|女儿|家属|妈|爸|化验|甲功|心电|胃镜|肠镜|B超|彩超|核磁)"
)
_BEHIND_SUBJECT = lazy_pattern(f"{_CLINICAL}|[A-Za-z\\d(（,，:：]")
_SUBJECT = lazy_pattern(rf"(?:^|(?<=\n))(?=[{_HAN}]{{2}})")
_NO_SUBJECT = lazy_pattern(
    "[患病我你您他她它们这那谁什么怎哪的了着过到是不没无未否有就都很也又请让把被给对等或但若如果因所以及与药汤丸片素霉菌毒癌瘤炎症痛肿]|^[在从于和还只先后前每各某该此当为经可应需要多少几第一二三四五六七八九十两半上下左右内外双单总各目现近既]|^[全应和](?=.(?:$|身|部|面|麻|当|该|及|以))"
)
_NO_SURNAME = lazy_pattern("[爸妈爷奶姐妹哥弟叔姨舅姑婶嫂夫妻儿孩宝医护师生士员]|[位名个次天年月日周岁时分]")


def subjects(text: str) -> Iterator[tuple[int, int]]:
    """Characters that are no word, at the beginning of a sentence and before a word of a note: 3 or 2 of them, or 4."""
    for match in _SUBJECT.finditer(text):
        start = match.start()
        for size in (3, 2, 4):
            end = start + size
            name = text[start:end]
            if len(name) == size and _can_be_subject(text, start, end) and not _NO_SUBJECT.search(name):
                yield start, end
                break


_ASKED_BEHIND = lazy_pattern("哪[里个家些]|那个医院|有没有|治疗")  # a town or a remedy: (徐州)哪里治疗, (白银)治疗癫痫


def _can_be_subject(text: str, start: int, end: int) -> bool:
    is_next_word = is_pair(text, end, often=True) or _BEHIND_SUBJECT.match(text, end)
    return (
        bool(is_next_word)
        and all("\u4e00" <= char <= "\u9fff" for char in text[start:end])
        and _is_no_word(text, start, end)
        and not is_pair(text, end - 1)
        and not any(is_seen(text, index) for index in range(start, end - 1))
        and not is_term(text, (start, end, "NAME"))
        and not _DRUG_END.search(text[start:end])
        and not _ASKED_BEHIND.match(text, end)
    )


def _find_subjects(text: str) -> Iterator[tuple[int, int]]:
    for start, end in subjects(text):
        name = text[start:end]
        begins = surname_length(text, start) > 0 or name[0] in WORD_SURNAMES
        if (begins and end - start < 4 and not _NO_SURNAME.search(name[:-1])) or is_given(name):
            yield start, end


_PERSON_ONLY = (
    "(?:问|说|诉|称|要求|拒绝|希望|表示)(?![明书])|今[天日早晨]|昨[天晚日夜]|[术产]后(?:第|\\d)|[出入]院|值班|没来|又(?:没|来|喝|犯)|自己|[他她](?!汀)|家属|被(?!动)|摔|怀孕|对.{1,8}(?:过敏|皮试)|[发高]烧\\d|血[压糖]\\d|体温\\d"
    "|胸痛\\d|呕吐物|出现荨|的(?:儿子|女儿|老伴|家属|妈|爸|报告|血[压糖钾]|尿|CT|胃镜|化验)|用[^药于了法]|三天|两天"
)
_WORD_SUBJECT = lazy_pattern(rf"(?:^|(?<=[。！？!?;\n]))(?P<name>[{_HAN}]{{2,3}}?)(?={_PERSON_ONLY})")
_SAYS_NAME = lazy_pattern(
    "患者名|叫这个|这名字|真叫|本名|名字就|真姓|名字真|音同|同音|谐音|不是(?:药|病|中药|骂人)|拆字|姓名缩写"
)


def says_name(text: str) -> bool:
    """Whether the text says of a word that it is a name: 患者真叫这个."""
    return _SAYS_NAME.search(text) is not None


def may_name_by_word(text: str) -> bool:
    """Whether a word that begins with a surname does what only a person does."""
    for match in _WORD_SUBJECT.finditer(text):
        start = match.start("name")
        if _is_word_subject(text, start, match.end("name")):
            return True
    return any(True for _ in subjects(text))


def _is_word_subject(text: str, start: int, end: int) -> bool:
    name = text[start:end]
    is_free = not _NO_SUBJECT.search(name) and not _NO_SURNAME.search(name) and not _EVERYDAY.match(name)
    is_cut = is_pair(text, start, often=True) or is_pair(text, end - 1, often=True)  # 连续使(用), 谢谢告(诉)
    return is_free and not is_cut and surname_length(text, start) > 0


def _find_word_subjects(text: str) -> Iterator[tuple[int, int]]:
    """Ordinary words; one of medicine only makes the text doubtful."""

    def is_name(start: int, end: int) -> bool:
        return _is_word_subject(text, start, end) and _is_no_term(text, start, end) and text[start:end] not in blocked_words()

    yield from spans_where(_WORD_SUBJECT, text, is_name)


_EVERYDAY = lazy_pattern(
    "[上下本这]周|周[一二三四五六日末]|明[天日早]|白天|平[时常素]|左|右|时|后来|于是|温度|高[压血烧]|方[才案法]|常|经|单|向来|安全|成[年功人]|解|全|石|水|关于|许多|万一|尤其|毕竟|应|原|从|相|余|和"
)


def _find_children(text: str) -> Iterator[tuple[int, int]]:
    if "之" in text:
        yield from spans_where(
            _CHILD_OF, text, lambda start, end: surname_length(text, start) > 0 and _is_no_word(text, start, end)
        )


def _find_long_surnames(text: str) -> Iterator[tuple[int, int]]:
    def is_name(start: int, end: int) -> bool:
        is_word = is_pair(text, end - 2, often=True) or is_pair(text, start + 1) or is_pair(text, start)  # 清水痰
        return _is_no_term(text, start, end) and not is_word and "氏病" not in text[start : end + 1]

    yield from spans_where(_LONG_SURNAME, text, is_name)


def _find_pet_names(text: str) -> Iterator[tuple[int, int]]:
    yield from spans_where(
        _PET_NAME, text, lambda start, end: not _NOT_PET.search(text[start:end]) and not is_pair(text, start, often=True)
    )


_NOT_PET = lazy_pattern(
    "[我你他她足远脆白红泡黑黄粉硬软圆爸妈爷奶姐妹哥弟叔伯姑姨舅婶公婆宝常天刚慢往多少个看想问说试听谢好久仅渐默悄偷隐时每种样人家]"
)


FINDERS = (
    Finder("surname of two characters, or of Japan or Vietnam", "NAME", ("{渡边纯一},左下肺炎", "{尉迟敏}孕检", "{阮氏秋}产后"), _find_long_surnames),
    Finder("pet name at home", "NAME", ("我家{妞妞}吃奶粉吐",), _find_pet_names),
    Finder("any name with a dot", "NAME", ("{孛儿只斤·苏日娜}，女", "{让-保罗·热内}，腹痛"), _find_dotted),
    Finder("name of another people of China", "NAME", ("{买合木提江}腹部超声", "{吉克阿果莫}，发热", "{海来阿呷莫}美沙酮门诊"), _find_peoples),
    Finder("rare surname before a given name", "NAME", ("{员翠霞}血糖高",), _find_rare),
    Finder("signature at the end", "NAME", ("定期复查。{区伟文}", "无特殊交班。{小宋}"), _find_signature),
    Finder("whole name before a title", "NAME", ("已告知{朴善姬}护士",), _find_titled),
    Finder("nickname", "NAME", ("{王姐}说她拉肚子", "{翁阿婆}，独居", "{阿强仔}，你的尿酸"), _find_nicknames),
    Finder("name that is half hidden", "NAME", ("{孙X芳}（保密）",), _find_hidden),
    Finder("name of an account", "NAME", ("@{糖糖家的猫} 你好",), _find_handles),
    Finder("foreign name in Latin letters", "NAME", ("{Dmitri Volkov}今天换药", "{Amy陈}说恶心", "我叫{Linda}，上海人"), _find_latin),
    Finder("pinyin in small letters", "NAME", ("{zhang xiaoli}上周来过", "我是{wangxiaomei}的女儿"), _find_small_pinyin),
    Finder("unknown word that a note begins with", "NAME", ("{全志贤}骨密度低",), _find_subjects),
    Finder("ordinary word that does what a person does", "NAME", ("{江山}昨晚发热",), _find_word_subjects),
    Finder("letters kept apart", "NAME", ("姓名：{L I   J I A N}，",), _find_spelled),
    Finder("somebody's child", "NAME", ("{钱慧芳}之子，早产",), _find_children),
)  # fmt: skip
