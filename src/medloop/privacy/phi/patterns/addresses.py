"""Postal addresses, postal codes and coordinates. Chinese addresses without such a cue: `chinese_places.py`."""

# ruff: noqa: E501  a pattern in one line is easier to read than one in pieces
import re

from medloop.privacy.phi.patterns.pattern import pattern

_ROADS = r"(?:Street|St|Avenue|Ave|Road|Rd|Drive|Dr|Lane|Ln|Boulevard|Blvd|Court|Ct|Way|Place|Pl|Square|Terrace|Parkway|Circle)"
_PROPER = r"[A-Z][A-Za-z'\-]{1,20}"
_HOME = "家住|现住|住址|家庭住址|地址|户籍地址|居住于|居住在|住在"

# fmt: off
ADDRESSES = (
    pattern("Chinese postal code", "ADDRESS", "邮编 {310000}",
            r"(?:邮编|邮政编码)[ :是为]{0,3}(?P<phi>\d{6})(?!\d)", digits=6, hints=("邮",)),
    pattern("zip code", "ADDRESS", "My zip code is: {35649}",
            r"\b(?:zip|postal)(?: ?code)?(?: is| of)?[ :#]{1,3}(?P<phi>\d{5}(?:-\d{4})?)(?!\d)", digits=5, hints=("zip", "postal"), flags=re.I),
    pattern("coordinates", "ADDRESS", "GPS {39.9042, 116.4074}",
            r"(?<![\d.])-?\d{1,3}\.\d{3,8}°?[ ,NS]{1,4}-?\d{1,3}\.\d{3,8}(?![\d.])", digits=8, hints=(".",)),
    pattern("behind the Chinese word for address", "ADDRESS", "家住{北京市朝阳区建国路8号}",
            rf"(?:{_HOME})(?:是|为" rf"|在)?[ :]{{0,3}}(?P<phi>(?=[^\s，。；,;]{{0,40}}[省市县区镇乡村路街巷弄号座栋室])[^\s，。；,;！？!?]{{4,60}})", hints=("住", "址")),
    pattern("street, town, state and zip code", "ADDRESS", "send it to {12 Oak Hill Road, Salem, OR 97301}",
            rf"\b\d{{1,6}} (?:{_PROPER} ){{1,4}}(?:{_ROADS}|[A-Z][a-z]{{2,12}})\b\.?(?:,? (?:Apt|Suite|Unit)\.? ?\w{{1,6}})?" rf"(?:,? {_PROPER}){{1,3}},? [A-Z]{{2}} \d{{5}}(?:-\d{{4}})?", digits=6),
    pattern("behind lives at or address", "ADDRESS", "lives at {12 Oak Hill Road, Salem}",
            r"\b(?:[Ll]ives|[Ll]iving|[Rr]esides|[Aa]ddress)(?: is| at|:){1,2} (?P<phi>(?=[^.;\n]{0,40}\d)[^.;\n]{5,80})", digits=1, hints=("lives", "living", "resides", "address")),
    pattern("house number and street", "ADDRESS", "pick-up at {690 N. Adams Ave, Apt 3B, Salem OR}",
            rf"(?<![\d.,/])\d{{1,6}}[A-Z]? (?:(?:[NSEW]{{1,2}}\.?|North|South|East|West) )?(?:{_PROPER} |\d{{1,3}}(?:st|nd|rd|th) ){{1,3}}{_ROADS}\b\.?" rf"(?:,? (?:(?:Apt|Suite|Ste|Unit|Room|Rm|Fl)\.? ?#?|#)\w{{1,6}})?(?:, {_PROPER}(?: {_PROPER}){{0,2}}|(?=,? [A-Z]{{2}}\b))?(?:,? [A-Z]{{2}}\b)?(?:,? \d{{5}}(?:-\d{{4}})?)?", digits=1, hints=tuple(_ROADS.lower().strip("()?:").split("|"))),
    pattern("post office box", "ADDRESS", "write to {P.O. Box 1234}",
            r"\bP\.? ?O\.? [Bb]ox \d{1,6}", digits=1, hints=(" box ",)),
    pattern("house number and whole street word", "ADDRESS", "near {12 Oak Hill Road}",
            rf"\b\d{{1,6}} (?:{_PROPER} ){{1,3}}(?:Street|Avenue|Ave|Road|Rd|Lane|Ln|Boulevard|Blvd)\b\.?", digits=1, hints=("street", "avenue", "ave", "road", "rd", "lane", "ln", "boulevard", "blvd")),
)
# fmt: on
