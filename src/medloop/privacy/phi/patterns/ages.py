"""Ages over 89, in digits and words: in the Safe Harbor list they identify a person as a date of birth does."""

# ruff: noqa: E501  a pattern in one line is easier to read than one in pieces
import re

from medloop.privacy.phi.patterns.pattern import pattern

_OLD = r"(?:9\d|1[0-2]\d)(?!\d)"
_OLD_WORDS = r"(?:ninety(?:[- ](?:one|two|three|four|five|six|seven|eight|nine))?|(?:a|one) hundred(?: and)?(?: ?-?(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve))?)"
_ELDER = "(?:grand|great-grand)?(?:mother|father|ma|pa)|mom|mum|dad|patient|pt|resident|husband|wife|aunt|uncle|nana|granny|sister|brother|man|woman|lady|gentleman|veteran|widow|widower"

# fmt: off
AGES = (
    pattern("years old", "AGE", "{96}周岁",
            rf"(?<![\d.]){_OLD}(?= ?(?:[多来余]|几)?(?:周岁|虚岁|高?岁|高龄|高寿|华诞|寿辰|大寿)|[- ]?(?:years?|yrs?\.?)[- ]?(?:old|of age|young)|[- ]?(?:y[./-]?o\b|y\. ?o\.))", digits=2, hints=("岁", "高", "寿", "诞", "y"), flags=re.I),
    pattern("behind the word age", "AGE", "age: {97}",
            rf"\b(?:aged?|ages|age of|age is|age was|age)[: =]{{1,3}}(?P<phi>{_OLD})(?!\d|[.%/]\d|%)", digits=2, hints=("age",), flags=re.I),
    pattern("behind turned or now", "AGE", "she turned {91} last week",
            rf"\b(?:turn(?:s|ed|ing)|will be|now|at the ripe old age of)(?: just| already)? (?P<phi>{_OLD})(?=[,.;!?]?(?: (?:and|in|on|this|next|last|but|years?|today|yesterday|soon)\b|\s*$|[.!]))(?! ?%)", digits=2, hints=("turn", "will be", "now"), flags=re.I),
    pattern("somebody is", "AGE", "my grandmother is {96}",
            rf"\b(?:she|he|who|{_ELDER})(?:['’]s| is| was|, now|, just turned| would be| had been)(?: now| already| almost| nearly| about| over| only| just| some)? (?P<phi>{_OLD})(?![\d.%/]\d|%|/| ?(?:mg|kg|lb|lbs|bpm|mm|percent|beats|degrees|pounds|cm|minutes|days|hours)\b)", digits=2, hints=("is", "was", "s", ","), flags=re.I),
    pattern("between commas behind a name", "AGE", "Mrs. Hill, {93}, fell",
            rf"(?:[A-Z][a-z]{{2,20}}|\b(?:{_ELDER})),? \(?(?!11[029]\b|12[02]\b)(?P<phi>{_OLD})(?=\)|, (?:was|is|has|had|who|lives|presents|presented|came|fell|of|from|a|an|with|admitted|died|reports|reported|takes|needs|complains|still|f|m|F|M|female|male)\b)", digits=2),
    pattern("before the sex", "AGE", "{93}F with CHF",
            rf"(?:^|[.;:\n] ?|\b(?:[Pp]t|[Pp]atient|[Tt]his|[Aa]n?|is) )(?P<phi>{_OLD}) ?/?(?=(?:[MF]|[Mm]ale|[Ff]emale|[Ww]oman|[Mm]an|[Ll]ady|[Gg]entleman)\b(?:[ ,]|$))", digits=2),
    pattern("birthday in digits", "AGE", "her {97}th birthday",
            rf"(?<![\d.]){_OLD}(?=(?:th|st|nd|rd) (?:birthday|year)\b)", digits=2, hints=("th", "st", "nd", "rd")),
    pattern("I am, also", "AGE", "I'm {95} and tired",
            rf"\b(?:I am|I['’]m|s?he['’]ll be|(?:is|was) also)(?: now| already)? (?P<phi>{_OLD})" r"(?=[,.;!?]?(?: (?:and|in|on|this|next|but|with|years?|so|now)\b|\s*$)|[.,!?] )", digits=2, hints=(" am ", "'m", "’m", "ll be", "also"), flags=re.I),
    pattern("a lady of", "AGE", "a lady of {91}",
            rf"\b(?:wom[ae]n|m[ae]n|lady|gentleman|veteran|widow|widower) of (?P<phi>{_OLD})\b(?! ?%)", digits=2, hints=(" of ",)),
    pattern("at the age somebody does something", "AGE", "at {92} she still drives",
            rf"\b[Aa]t (?P<phi>{_OLD})(?=,? (?:she|he|I|my|they)\b)", digits=2, hints=("t 9", "t 1")),
    pattern("behind a Chinese relative", "AGE", "我爷爷{96}了还抽烟",
            rf"(?:爷|奶|外公|外婆|姥姥|姥爷|父亲|母亲|爸|妈|老人|老伴|患者)(?:家|今年|已经|都|快|现在){{0,2}}(?P<phi>{_OLD})(?=了|[,，。])", digits=2, hints=("了", "，", ",", "。")),
    pattern("years before a comma or the sex", "AGE", "{94} years, female",
            rf"(?<![\d.]){_OLD}(?=[- ](?:years?|yrs?)\b,? ?(?:[,.;)]|\b(?:f|m|female|male|woman|man|F|M)\b))", digits=2, hints=("y",)),
    pattern("Chinese numerals", "AGE", "{九旬}老人",
            r"九十[一二三四五六七八九]?(?=[多来余几]?[周虚高]?[岁龄寿])|一百[零〇一二三四五六七八九十]{0,3}(?=[多来余]?[周虚高]?岁)|百岁(?=老|高|寿|诞)|(?<=[逾过近届])(?:九旬|百岁)|九旬(?=老|高|的?[母父奶爷祖外婆])", hints=("岁", "旬", "九十")),
    pattern("English words before years old", "AGE", "a {ninety-four}-year-old woman",
            rf"\b{_OLD_WORDS}(?=[- ](?:years?|yrs?)[- ](?:old|of age|young)|[- ]?y/?o\b)", hints=("ninety", "hundred"), flags=re.I),
    pattern("English words behind aged or is", "AGE", "turned {ninety-two} last week",
            rf"\b(?:aged?|age of|turn(?:s|ed|ing)|is|was|she['’]s|he['’]s|will be|now|at)(?: now| almost| nearly| about| already)? (?P<phi>(?>{_OLD_WORDS}))(?!,?[- ]?(?:point|ninety|twenty|thirty|forty|fifty|sixty|seventy|eighty|and|percent|%|days|minutes|milligrams|mg|degrees|hours|dollars|patients|pounds|seconds|per|beats|over))\b", hints=("ninety", "hundred and"), flags=re.I),
    pattern("birthday in words", "AGE", "his {ninety-first} birthday",
            r"\b(?:ninet(?:ieth|y-(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth))|(?:one )?hundred(?:th| and \w{3,9}th))(?= birthday)", hints=("birthday",), flags=re.I),
    pattern("Chinese numerals behind a cue", "AGE", "他今年{九十三}了",
            r"(?:年龄|虚岁|今年|已经?|年纪|都|快)(?P<phi>九十[一二三四五六七八九]?)(?=了|[,，。、；;]|$)", hints=("九十",)),
    pattern("digits behind a Chinese cue", "AGE", "年龄：{97}，",
            rf"(?:年龄|年纪|高龄|虚岁|周岁|享年|终年|今年|已经|快|都)[ :是为已有]{{0,2}}(?P<phi>{_OLD})(?=了|岁|周岁|高龄|[,，。、；;！!？? ]|$)(?![ ]?(?:mm|次|%|kg|斤|分|元))", digits=2, hints=("年", "龄", "岁", "已经", "快", "都")),
    pattern("is … and lives", "AGE", "Ann is {93} and well",
            r"(?<=\bis )(?:9\d|1[0-2]\d)(?= and (?:lives|well|still|very|frail|has|in|active|otherwise)\b| years)", digits=2, hints=("is 9", "is 1")),
)
# fmt: on
