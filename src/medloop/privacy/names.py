"""Names with a title or a label, Chinese and English. A bare name in running text needs a trained tagger, not this."""

from __future__ import annotations

import re
from collections.abc import Iterator

_COMPOUND = "欧阳|司马|上官|诸葛|东方|皇甫|尉迟|公孙|慕容|令狐|司徒|宇文|夏侯|端木|长孙|南宫"
_SURNAMES = (
    "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛叶阎余潘杜戴夏钟汪田任姜范方石"
    "姚谭廖邹熊金陆郝孔白崔康毛邱秦江史顾侯邵孟龙万段雷钱汤尹黎易常武乔贺赖龚文庞樊兰殷施陶洪翟安颜倪严牛温芦季俞章鲁葛伍韦申尤毕聂焦"
    "柴柳邢岳齐吉喻危鲜苟敖昝晁符匡甯冀樊瞿滕印麦饶巫沿梅莫庄辛管祝左涂谷祁舒耿牟卜路詹关苗凌费纪靳盛童欧甄项曲成游阳裴席卫查屈鲍覃霍翁隋植甘景薄单包司柏宁柯阮桂闵解"
    "强丛华车冉房边净阴闫佟晏蓝简娄褚卞岑习冷井柏宗巩胥仇丘鞠"
)
_SURNAME = f"(?:{_COMPOUND}|[{_SURNAMES}])"
_GIVEN = r"[\u4e00-\u9fff]{1,2}"
_TITLE = "医生|医师|大夫|主任|护士长|护士|先生|女士|小姐|教授|院长|阿姨|大爷|大妈|老师|药师|同志"
# Words that begin like a name but are none.
_NOT_A_NAME = re.compile(
    "高血|高热|高烧|高龄|高危|高度|高脂|白天|白细|白血|白带|常规|常见|常有|常感|方面|方便|方案|时间|时候|时常|时有|任何|于是|于今"
    "|成人|成年|安全|安静|安排|金属|马上|万一|单纯|单侧|单独|包括|包块|关节|关于|关注|文化|温度|温水|路上|左侧|左右|左上|左下"
    "|左手|左腿|左眼|左肺|左膝|华法|车祸|阴道|阴囊|阴性|阳性|简单|冷汗|冷敷|解释|解决|盛行|强烈|强调|史无|边缘|管理|严重"
    "|易感|易怒|石膏|毛发|段时|连续|康复|何时|何种|何处|曾有|曾在|曾患|曾因|曾经|周前|周后|周岁|周围|周末|周[一二三四五六日]"
    "|夏天|夏季|江湖|武汉|林区|黄疸|黄色|黄痰|许多|余无|余未|查体|查血|查房|查出|景象|周期|梅核|成长|范围|严格|包扎|解除|成分|管床|全科|家庭"
)
_BEFORE_ZH = "患者|病人|患儿|产妇|孕妇|家属|联系人|监护人|医生|医师|大夫|主任|护士|经治|主治|收件人|签名|签字|记录者|审核者"
_NUMBERS_ZH = "住院号|门诊号|病历号|病案号|就诊号|身份证|手机|电话|联系电话|微信"
_OFTEN = "王李张刘陈杨赵黄周吴徐孙胡朱林何郭罗梁宋郑谢韩唐冯董程曹袁邓许"
_ZH = tuple(
    re.compile(pattern)
    for pattern in (
        # A label, then the name, then something that ends it: "患者王芳，女", "主管医师：陈淑兰。"
        rf"(?:{_BEFORE_ZH})(?:姓名|签名)?[ :是为]{{0,3}}(?P<x>{_SURNAME}{_GIVEN})"
        r"(?=[\s,。;、:()\d/，；：]|男|女|$|已|于|因|你好|您好)",
        rf"(?:姓名|我叫|名叫|名字是|名字叫|我是(?!个|一|在|不))[ :是为]{{0,3}}"
        rf"(?P<x>{_SURNAME}{_GIVEN}?(?:[\u4e00-\u9fff](?=[,。;、\s]|$))?)(?![的了])",
        rf"(?P<x>{_SURNAME}{_GIVEN})(?=(?:{_TITLE})(?!员))",
        rf"(?<![主保任如为])(?P<x>[{_SURNAMES}])(?=(?:{_TITLE})(?!员|证|室|台))",
        rf"(?P<x>{_SURNAME}{_GIVEN})(?=[,( ]{{1,2}}[男女][,、 )])",
        rf"(?<=[:,。; \n])(?P<x>{_SURNAME}{_GIVEN})(?=[, ](?:{_NUMBERS_ZH}))",
        rf"[老小](?P<x>[{_OFTEN}])(?=[,。;、\s说来去]|$)",
    )
)
_CAP = r"[A-Z][a-z'’\-]{1,20}(?:[A-Z][a-z]{1,20})?"
_WHOLE = rf"(?:(?:{_CAP}|[A-Z]\.?|van|von|der|den|de|la|le|di|bin|al)[ \-]){{0,3}}{_CAP}"
_TITLE_EN = "Dr|Mr|Mrs|Ms|Miss|Mx|Prof|Professor|Doctor|Nurse|Sir|Madam|Sister|Rev|Fr|Capt|Sgt"
_BEFORE_EN = (
    "[Pp]atient|[Nn]ame|[Aa]ttending|[Pp]hysician|[Pp]rovider|[Ss]urgeon|[Cc]linician|[Gg]uardian|[Ee]mergency contact"
    "|[Cc]ontact|[Ss]igned(?: by)?|[Rr]eferred by"
)
_KIN = "wife|husband|son|daughter|mother|father|mom|dad|grandmother|grandfather|brother|sister|child|partner|friend"
_EN = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\b(?:{_TITLE_EN})\b\.?,? (?P<x>{_WHOLE})",
        rf"\b(?:{_BEFORE_EN})(?: name| is)?[:,]? (?P<x>{_CAP}(?: (?:[A-Z]\.|{_CAP})){{1,2}})",
        rf"\b[Pp]atient:? (?P<x>{_CAP}) (?=is\b|was\b|has\b|had\b|\()",
        rf"\b(?:[Mm]y name(?:'s| is)|I am called|[Tt]his is|I am|I['’]m) (?P<x>{_CAP}(?: (?:[A-Z]\.|{_CAP})){{1,2}})",
        rf"\b[Mm]y (?:{_KIN}),? (?P<x>{_CAP}(?: {_CAP}){{0,2}})",
        rf"(?P<x>{_CAP} (?:[A-Z]\. )?{_CAP})"
        r"(?=,? (?:MD|M\.D\.|RN|DO|PhD|DVM|DDS|NP|PA-C)\b|,? (?:is|was) an? \d{1,3}[- ]year)",
        rf"(?P<x>{_CAP}, {_CAP}(?: [A-Z]\.)?)(?=,? (?:DOB|MRN|\())",
    )
)
_EN_STOP = frozenset(
    """The This That There Then He She It We You They I In On At For And But If Please Patient Doctor Call Take Your My His Her
    No Not Yes Because When Where What Who How Is Are Was Monday Tuesday Wednesday Thursday Friday Saturday Sunday January
    February March April May June July August September October November December Emergency Department Hospital Clinic
    Having Taking Feeling""".split()
)


def find(folded: str) -> Iterator[tuple[int, int, str]]:
    for pattern in _ZH:
        for match in pattern.finditer(folded):
            if not _NOT_A_NAME.match(match["x"]):
                yield match.start("x"), match.end("x"), "NAME"
    for pattern in _EN:
        for match in pattern.finditer(folded):
            if match["x"].split()[0] not in _EN_STOP:
                yield match.start("x"), match.end("x"), "NAME"
