"""Generate Chinese texts with marked names: our own sentences by genre, and real medical texts with names put into them.

    maker = Maker(seed=1, carriers=sentences(paths))       # without carriers: our own sentences alone
    maker.text()                                          # ("患者王芳，女，38岁…", [(2, 4)])

Sentences: tools/phi_templates_zh.txt (also texts without names), tools/phi_genres_zh.txt, and pieces of notes from
tools/phi_notes_zh.txt; names by kind: tools/phi_names_zh.py. Given names whose hash is odd
(phi_lists.held_out) can be kept out of training and used for judging alone; names of one character are too few for that.
"""

# ruff: noqa: E501
from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

from phi_corpus import CHOICE, SLOT, strings
from phi_names_zh import NameMaker

from medloop.privacy.phi import lists
from medloop.privacy.phi.normalize import MASK, fold

HERE = Path(__file__).parent
Span = tuple[int, int]
ILLS = (
    "高血压|发热伴咽痛2天|头晕|胸闷气短|2型糖尿病|急性阑尾炎|咳嗽咳痰|腹痛腹泻|脑梗死|冠心病|支气管哮喘|双下肢水肿|胃痛|失眠|颈椎病|贫血|甲亢|肺炎|胆囊结石|湿疹|"
    "腰椎间盘突出|月经不调|过敏性鼻炎|高脂血症|白癜风|白带异常|高烧不退|方向感差|白内障|黄疸|石淋|关节炎|阴道炎|包皮过长|单纯性疱疹|乙肝|尿路感染|心律失常|痛风|骨折"
    "|肝硬化|肺结节|甲状腺结节|乳腺增生|子宫肌瘤|前列腺增生|慢阻肺|房颤|心衰|心梗|脑出血|癫痫|抑郁症|焦虑|荨麻疹|带状疱疹|青光眼|中耳炎|扁桃体炎|胃溃疡|肠梗阻|痔疮|疝气|肾结石|尿毒症|白血病|淋巴瘤|肺癌|胃癌|肠癌"
).split("|")
DRUGS = "阿司匹林|二甲双胍|头孢克肟|布洛芬|阿莫西林|硝苯地平|氨氯地平|阿托伐他汀|奥美拉唑|左氧氟沙星|甲硝唑|氯雷他定|胰岛素|华法林|地塞米松|蒙脱石散|板蓝根|双黄连|安宫牛黄丸|六味地黄丸|金匮肾气丸|马应龙痔疮膏|云南白药|三九胃泰|江中健胃消食片|史克肠虫清|方盛|康泰克|白加黑|金水宝|倍他乐克|施慧达|拜新同|易善复|雷贝拉唑|莫沙必利|曲美他嗪|单硝酸异山梨酯|华蟾素|康复新液".split(
    "|"
)
TCM = "白芍|黄芪|当归|川芎|白术|甘草|茯苓|党参|金银花|连翘|桂枝|麻黄|石膏|知母|黄连|黄芩|黄柏|龙胆草|熟地黄|山药|泽泻|丹皮|柴胡|半夏|陈皮|杜仲|牛膝|桑寄生|何首乌|枸杞子|马齿苋|车前子|龙骨|牡蛎|石决明|钟乳石|白茅根|白及|雷公藤|苏叶|苏木|乌梅|梅花|葛根|柏子仁|管花肉苁蓉|景天|江剪刀草|方海|金樱子|单叶蔓荆|包公藤|卷柏|秦艽|秦皮|贺兰|谷芽|谷精草|毛冬青|程氏萆薢分清饮|李东垣|易黄汤|温胆汤|左归丸|右归饮|安神定志丸|康莱特|甘露消毒丹|方剂|成药|汤剂|文火|武火".split(
    "|"
)
SOUNDS = "阿安巴贝比布达丹地丁多恩非芬伏氟格吉甲卡康考可拉来兰雷利立林龙卢洛罗马麦美米莫那纳尼宁诺帕潘匹平普齐青曲瑞沙舍施司苏索他泰坦特替托万维文武西辛伊易因英扎左佐唑"
KIN = "我爱人|爱人|孩子|宝宝|爸爸|妈妈|父亲|母亲|老伴|哥哥|姐姐|弟弟|妹妹|我丈夫|我妻子|女婿|儿媳|外公|外婆|爷爷|奶奶|孙子|孙女|侄女|表哥|堂妹|婆婆|公公|岳父|岳母|我同学|我老板|闺蜜|男友|女友".split(
    "|"
)
ROLES = "伤者|死者|收货人|寄件人|参保人|受检者|供者|受者|捐献者|志愿者|见证人|翻译|陪护|护工|司机|房东|值班员|实习生|研究生|麻醉师|技师|调度员|民警|律师|客户|会员|学员|住户|失主|车主|投诉人|来电者|接线员|主刀|助手|器械护士|巡回护士|带教老师|班主任".split(
    "|"
)
CITIES = "苏州|青岛|西安|贵阳|长沙|太原|兰州|哈尔滨|石家庄|呼和浩特|齐齐哈尔|桂林|大理|合肥|福州".split("|")
# Words of real texts beside which, or in whose place, somebody's name can stand.
PERSON = re.compile(
    "患者|病人|病患|产妇|孕妇|老人|患儿|小孩|孩子|宝宝|儿子|女儿|老公|妻子|爱人|妈妈|爸爸|母亲|父亲|奶奶|爷爷|外婆|朋友|同事|家属|本人|我妈|我爸|丈夫|婆婆|姐姐|弟弟|妹妹"
)
STAFF = re.compile(
    "(?<![一-鿿])(?:医生|大夫|主任|护士|教授|专家|医师)|(?<=[请问找去让的由给跟和向听您])(?:医生|大夫|主任|护士|教授|医师)"
)
PRONOUN = re.compile("(?<![其吉一-鿿])[我他她](?![们汀莫唑克达司巴])|(?<=[，。让给把被跟和对])[他她](?![们汀莫唑克达司巴])")
CLAUSE = re.compile(r"(?<=[，。！？；：\n])(?=[一-鿿])|(?=[，。！？；])|$")
SENTENCE = re.compile(r"[^。！？\n]{4,120}[。！？\n]?")
NAMED = re.compile(
    "[王李张刘陈杨赵黄周吴徐孙胡朱林郭马罗梁宋郑谢韩唐冯董程曹袁邓许][^，。]{0,2}(?:医生|主任|教授|大夫|护士|先生|女士)|某某"
)


def sentences(paths: Sequence[Path], part: str) -> list[str]:
    """Pieces of the even rows of these JSON lines: "train", or "dev" (every fifth of them). Odd rows are for measuring."""
    pieces = dict[str, None]()
    for path in paths:
        opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")
        with opened as file:
            for number, line in enumerate(file):
                if number % 2 or (number % 10 == 8) != (part == "dev"):
                    continue
                for text in strings(json.loads(line)):
                    pieces.update(dict.fromkeys(m[0] for m in SENTENCE.finditer(text) if not NAMED.search(m[0])))
    return list(pieces)


class Maker:
    """Texts by the seed, with the spans of names."""

    NAMED_SLOTS = frozenset(("name", "sur", "given"))

    def __init__(
        self, seed: int, carriers: Sequence[str] = (), without: Sequence[str] = (), only: Sequence[str] = (), half: str = "all"
    ) -> None:
        self.rng = random.Random(seed)
        self.names, self.carriers = NameMaker(self.rng, half), carriers
        self.words = lists.lines("words_zh.txt")
        self.frequent = (HERE / "phi_common_zh.txt").read_text(encoding="utf-8").split()
        plain, free = (HERE / "phi_templates_zh.txt").read_text(encoding="utf-8").split("== free\n")
        genres = {"plain": [line for line in plain.splitlines() if line and line[0] != "#"]}
        for line in (HERE / "phi_genres_zh.txt").read_text(encoding="utf-8").splitlines():
            if line.startswith("== "):
                genres[line[3:]] = []
            elif line and line[0] != "#":
                genres[list(genres)[-1]].append(line)
        self.genres = {name: forms for name, forms in genres.items() if name not in without and (not only or name in only)}
        self.free = free.splitlines()
        self.pieces = dict[str, list[str]]()
        for line in (HERE / "phi_notes_zh.txt").read_text(encoding="utf-8").splitlines():
            if line.startswith("== "):
                self.pieces[line[3:]] = []
            elif line[0] != "#":
                self.pieces[list(self.pieces)[-1]].append(line)

    def slot(self, name: str) -> str:
        rng = self.rng
        match name:
            case "name":
                return self.names.whole()
            case "sur":
                return self.names.surname()
            case "given":
                return self.names.long_given()
            case "event" | "person" | "thing":
                if name == "event" and self.carriers and rng.random() < 0.25:
                    return self.clause()
                return rng.choice(self.pieces[name]).replace("<n>", str(rng.randint(1, 99)))
            case "w":
                if self.carriers and rng.random() < 0.4:
                    return self.clause()
                return rng.choice(self.words if rng.random() < 0.3 else self.frequent)
            case "sound":  # a drug's name by its sound: 替米沙坦, 莫米松
                size = rng.randint(2, 4)
                return "".join(rng.choice(SOUNDS) for _ in range(size)) + rng.choice("坦平唑定酮林松星胺素酸钠片康宁灵特酯芬尔")
            case "n":
                return str(rng.randint(1, 99))
            case "date":
                return rng.choice(("2021年3月4日", "2019-05-06", "3月8日"))
            case "phone":
                return f"138{rng.randint(10**7, 10**8 - 1)}"
            case "hosp":
                return rng.choice(CITIES) + rng.choice(("市第一人民医院", "中医院", "协和医院", "儿童医院", "妇幼保健院"))
        listed = {"kin": KIN, "role": ROLES, "ill": ILLS, "drug": DRUGS, "tcm": TCM}
        if name in listed:
            return rng.choice(listed[name])
        return f"{rng.choice(('住院号', '门诊号', '病历号', ''))}{rng.choice(('ZY', 'MZ', ''))}{rng.randint(10**5, 10**8)}"

    def clause(self) -> str:
        """The beginning of a clause of a real text, up to twelve characters."""
        match = re.match(r"[一-鿿]{2,12}", self.rng.choice(re.split("[，。、；：]", self.rng.choice(self.carriers))))
        return match[0] if match else self.rng.choice(self.frequent)

    def sentence(self, template: str) -> tuple[str, list[Span]]:
        while True:
            chosen = CHOICE.sub(lambda m: self.rng.choice(m[1].split("|")), template)
            if chosen == template:
                break
            template = chosen
        template = template.replace("\\n", "\n")
        text, spans, position = "", list[Span](), 0
        for match in SLOT.finditer(template):
            text += template[position : match.start()]
            filling = self.slot(match[1])
            if match[1] in self.NAMED_SLOTS:
                spans.append((len(text), len(text) + len(filling)))
            text += filling
            position = match.end()
        return text + template[position:], spans

    def template(self) -> tuple[str, list[Span]]:
        forms = self.genres[self.rng.choice(list(self.genres))] if self.rng.random() < 0.7 else self.free
        return self.sentence(self.rng.choice(forms))

    def carried(self) -> tuple[str, list[Span]]:
        """A real sentence with names put where it speaks of a person."""
        text, rng = self.rng.choice(self.carriers), self.rng
        spots = [(m, "person") for m in PERSON.finditer(text)] + [(m, "staff") for m in STAFF.finditer(text)]
        spots += [(m, "pronoun") for m in PRONOUN.finditer(text)]
        clauses = list(CLAUSE.finditer(text))
        if clauses and (not spots or rng.random() < 0.25):
            spots.append((rng.choice(clauses), "clause"))
        spots = rng.sample(spots, min(len(spots), rng.choice((1, 1, 2, 3))))
        result, spans, position = "", list[Span](), 0
        for match, sort in sorted(spots, key=lambda spot: spot[0].start()):
            if match.start() < position:
                continue
            before, name, after = self.put(match, sort, text)
            result += text[position : match.start()] + before
            spans.append((len(result), len(result) + len(name)))
            result, position = result + name + after, match.end()
        return result + text[position:], spans

    def person(self) -> str:
        """The name that is put into a real sentence."""
        return self.names.whole()

    def put(self, match: re.Match[str], sort: str, text: str) -> tuple[str, str, str]:
        rng, name, word = self.rng, self.person(), match[0]
        first = not match.start() or not "一" <= text[match.start() - 1] <= "鿿"
        if sort == "pronoun":
            return "", name, ""
        if sort == "staff":
            if rng.random() < 0.3:
                return "", self.names.surname(), word
            return ("", name, word) if rng.random() < 0.6 else (word, name, "")
        if sort == "person":
            how = rng.random()
            if how < 0.35 and first:
                return "", name, ""
            if how < 0.45 and first:
                return "", name, rng.choice(("的", "")) + word
            return word + rng.choice(("", "", "", "，", "（", "：", "叫", "是")), name, ""
        end = match.start() == len(text) or text[match.start()] in "，。！？；"
        if end:
            return (
                rng.choice(("，", " ", "", "，我是", "——", "，谢谢", "（", "\n", "，找", "给")),
                name,
                rng.choice(("", "", "）", "医生")),
            )
        return rng.choice(("", "", "请", "和", "跟", "让", "与")), name, rng.choice(("", "", "，", "：", "说", "您好，", "的"))

    def text(self) -> tuple[str, list[Span]]:
        """One text: real and unchanged, real with names, our own sentences, or some of each."""
        rng, text, spans = self.rng, "", list[Span]()
        share = rng.choice(("real", "real", "carried", "carried", "own", "own", "mixed")) if self.carriers else "own"
        for _ in range(rng.choice((1, 1, 2, 3))):
            sort = rng.choice(("real", "carried", "own")) if share == "mixed" else share
            if sort == "real":
                piece, piece_spans = rng.choice(self.carriers), list[Span]()
            else:
                piece, piece_spans = self.carried() if sort == "carried" else self.template()
            spans += [(start + len(text), end + len(text)) for start, end in piece_spans]
            text += piece + rng.choice(("", "", "\n", " ", "。", "，"))
        if rng.random() < 0.5:
            text = text.rstrip("。，\n ") if not spans or spans[-1][1] <= len(text.rstrip("。，\n ")) else text
        return self.masked(fold(text), spans) if rng.random() < 0.15 else (fold(text), spans)

    def masked(self, text: str, spans: Sequence[Span]) -> tuple[str, list[Span]]:
        """Some names are placeholders already: to stand beside one does not make a word a name."""
        result, left, position = "", list[Span](), 0
        for start, end in spans:
            result += text[position:start]
            if self.rng.random() < 0.7:
                result += MASK * 8
            else:
                left.append((len(result), len(result) + end - start))
                result += text[start:end]
            position = end
        return result + text[position:], left
