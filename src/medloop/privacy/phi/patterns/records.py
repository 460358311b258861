"""Numbers of records, cards, policies, devices, vehicles and pictures, mostly by the word before them."""

# ruff: noqa: E501  a pattern in one line is easier to read than one in pieces
import re

from medloop.privacy.phi.patterns.pattern import by_first_letter, pattern

_ID = r"[A-Za-z0-9][A-Za-z0-9_\-/]{2,29}"
_WITH_DIGIT = r"(?=[A-Za-z_\-/]{0,12}\d)"
_NUMBER_WORD = r"(?:number|num|no\.?|id|code|#)"
_NUMBERED = (  # things that have a number; the word "number" follows
    "patient|chart|record|member|health plan|insurance|licen[cs]e|serial|lot|implant|pacemaker|claim|case"
    "|encounter|visit|specimen|order"
    "|referral|invoice|group|beneficiary|subscriber|certificate|badge|employee|student|hospital|device|file"
    "|reference|confirmation|prescription|rx"
)
_NUMBERS = (  # words for a number, which need no "number" behind them
    "MRN|med(?:ical)?\\.? rec(?:ord)?|account|acct\\.?|policy|NPI|DEA|passport|S/N|IMEI|UDI|plate|SSN|social security|tax id"
    "|driver'?s licen[cs]e"
    "|accession|fingerprint|voiceprint|retinal? scan|biometric|VIN|medicare|medicaid|HIC|NHS|device serial|licen[cs]e plate"
)
_LABELS_EN = rf"(?:{by_first_letter(_NUMBERED)}) {_NUMBER_WORD}|(?:{by_first_letter(_NUMBERS)})(?: {_NUMBER_WORD})?"
_LABELS_ZH = (
    "病历号|病案号|住院号|门诊号|就诊号|就诊卡号?|登记号|检查号|影像号|标本号|条码号|医保(?:卡|账)?号|医保卡"
    "|医疗保险号|社会保障号|参保号|个人编号|社保卡?号|保单号|保险单号"
    "|护照号?码?|军官证号?|工号|执业证(?:书)?(?:编)?号|车牌号?|银行卡号?|卡号|账号|体检号|样本号|报告单?号|急诊号"
    "|港澳通行证号?|通行证号?|台胞证号?|驾驶证号?|驾照号?|车架号|发动机号"
    "|处方号|订单号|快递单号|运单号|发票号码?|流水号|条形码|准考证号?|学籍号|单号|票号|编号|残疾证号?|献血证号?|预约号|缴费单号|序号|就诊码|健康码"
    "|指纹编号|声纹编号|档案号|健康卡号|电子健康卡|登记证号|学号|身份证(?:号码?)?|证件号码?|病员号|ID号?|设备(?:序列)?号|序列号"
)
_CUES = by_first_letter(  # whatever has a number, named shortly before that number
    "MRN|CSN|FIN|HAR|EMR|EHR|UHID|MPI|med(?:ical)? rec(?:ord)?|chart|claim|case|accession|path(?:ology)?|surgical|cytology|histology|reference|ref"
    "|policy|member(?:ship)?|order|ticket|encounter|visit|specimen|sample|requisition|req|referral|auth(?:orization)?|prior auth(?:orization)?"
    "|approval|confirmation|complaint|incident|report|request|tracking|invoice|receipt|account|acct|file|record|folder|dossier|barcode|wristband"
    "|subscriber|beneficiary|group|certificate|permit|plan|insurance|insured|hospital|patient|pt|study|exam|imaging|radiology|lab|badge|employee|staff"
    "|appointment|booking|reservation|docket|matter|grievance|appeal|enrollment|registration|admission|discharge|transaction|payment|bill(?:ing)?"
    "|statement|script|prescription|rx|serial|device|implant|lot|licen[cs]e|NPI|DEA|passport|ID|identifier"
)
_NO_RANGE = r"(?!\d{1,4}[\-/]\d{1,4}(?![\w\-/])|(?:19|20)\d{2}(?![\w\-/]))"  # not 135-145 or 120/80: those are values
_NO_UNIT = r"(?![A-Za-z0-9%]|[.,]\d| ?(?:mg|mcg|ml|mL|g|kg|units?|IU|U|mmol|patients|cases|copies|cells|steps|calories|kcal|dollars|people|women|men|years|bpm|participants|children|adults|samples)\b)"
_ZH_GAP = r"(?:我记得|应该|好像|大概|可能|写的|写着|显示|查到了?|是|为|系|:|#|No\.?|NO\.?|no\.?|[ =\-(\[【\"“\n]){0,5}"
_ZH_CODE = r"(?:[A-Za-z]{1,6}[ \-]?)?(?=(?:[A-Za-z_\-/]{0,4}\d){3})[A-Za-z0-9]+(?:[_\-/][A-Za-z0-9]+){0,5}"
_THINGS_ZH = (
    "住院|门诊|急诊|病案|病历|病理|标本|样本|检验|检查|影像|内镜|超声|核磁|放射|医保|社保|保单|报案|案件|理赔|工单|订单|处方|票据|发票|挂号|就诊|登记"
    "|受理|投诉|档案|体检|单据|条码|申请单?|报告单|缴费单|收据|送检单|报销单|会诊单|随访卡|登记证|流水|单子上是|系统里查"
)
_PROVINCES = "京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼"

# fmt: off
RECORDS = (
    pattern("US social security number", "SSN", "SSN {078-05-1120}",
            r"(?<!\d)\d{3}[- ]\d{2}[- ]\d{4}(?!\d)", digits=9),
    pattern("number behind an English label", "RECORD", "MRN: {55707238}",
            rf"\b(?:{_LABELS_EN})\s{{0,2}}(?:is\s)?[:#=]{{0,2}}\s{{0,2}}#?(?P<phi>{_WITH_DIGIT}{_ID})", digits=1, flags=re.I, code=True),
    pattern("number behind a Chinese label", "RECORD", "住院号{ZY290104}",
            rf"(?:{_LABELS_ZH})(?:是|为)?[ :#]{{0,3}}(?P<phi>{_WITH_DIGIT}{_ID})", digits=1, hints=("号", "证", "卡", "照", "码", "id"), code=True),
    pattern("vehicle identification number", "VEHICLE", "car {1HGCM82633A004352}",
            r"(?<![A-Za-z0-9])(?=[A-Z]{0,16}\d)(?=[0-9]{0,16}[A-Z])[A-HJ-NPR-Z0-9]{17}(?![A-Za-z0-9])", digits=1, code=True),
    pattern("file name of a picture", "PHOTO", "see {IMG_2041.jpg}",
            r"(?<![\w./])[\w\-]{1,60}\.(?:jpe?g|png|heic|dcm|bmp|tiff?)\b", hints=(".jp", ".png", ".heic", ".dcm", ".bmp", ".tif"), flags=re.I),
    pattern("Chinese licence plate", "PLATE", "车牌{沪ALJ26G}",
            rf"[{_PROVINCES}][A-HJ-NP-Z][· ]?[A-HJ-NP-Z0-9]{{5,6}}(?![A-Za-z0-9])", hints=tuple(_PROVINCES)),
    pattern("card number in groups", "CARD", "工行卡：{6222-0212-3456-7891}",
            r"(?<![\d.,/])\d{4}(?:[ \-]\d{4}){3}(?:[ \-]?\d{1,4})?(?!\d)|(?<!\d)3\d{3}[ \-]\d{6}[ \-]\d{5}(?!\d)", digits=15),
    pattern("Chinese resident id in groups", "ID", "证件号{440106 19850612 0034}",
            r"(?<!\d)\d{6}[ \-](?:\d{8}|\d{4}[ \-]\d{4})[ \-]\d{3}[\dXx](?![\dA-Za-z])", digits=17),
    pattern("last digits of an account", "RECORD", "account ending in {4421}",
            r"\b(?:SSN|social security|account|acct|card)[a-z ]{0,20}end(?:s|ing)(?: in| with)? (?P<phi>\d{3,4})\b", digits=3, hints=("end",), flags=re.I),
    pattern("code behind a short English label", "RECORD", "Rx# {6612345}",
            r"\b(?i:rx|claim|serial|member|chart|order|invoice|badge|employee|accession|specimen|ref(?:erence)?|confirmation|certificate" r"|licen[cs]e|beneficiary|plan|insurance|subscriber|pager|beeper|ext(?:ension|n)?|locker|id)\b\.?(?: (?:is|no\.?|number))?[ :#=]{1,3}" rf"(?P<phi>{_NO_RANGE}(?=(?:[A-Z\-/]{{0,12}}\d){{3}})[A-Z0-9][A-Z0-9\-/]{{3,24}}){_NO_UNIT}", digits=3, code=True),
    # a few words may stand between the cue and its number only where a sign or "is" leads up to the number
    pattern("code a few words behind its cue", "RECORD", "Reference on my bill is {7731902}",
            rf"\b(?i:{_CUES})\b\.?(?:(?: [a-z]{{1,12}}){{0,3}}(?: is| was|:| #| no\.?)|(?i:[ :#=]{{1,3}}(?:{_NUMBER_WORD}|is|was|of))?)[ :#=\-]{{1,3}}" rf"(?P<phi>{_NO_RANGE}(?:[A-Z]{{1,5}}[ \-/]?)?(?=(?:[A-Z\-/_]{{0,3}}\d){{4}})[A-Z0-9]+(?:[\-/_][A-Z0-9]+){{0,5}}){_NO_UNIT}", digits=4, code=True),
    pattern("record number in groups", "RECORD", "MRN: {12 34 56}",
            rf"\b(?i:MRN|medical record|chart|record)(?i: {_NUMBER_WORD}| is|:){{0,2}} (?P<phi>\d{{2,4}}(?: \d{{2,4}}){{1,3}})(?![\d.]){_NO_UNIT}", digits=5),
    pattern("code behind a number sign", "RECORD", "№ {A12345}",
            rf"(?<![A-Za-z0-9&])(?:#|№|No\.) ?(?P<phi>(?=(?:[A-Z\-/]{{0,3}}\d){{5}})[A-Z0-9]+(?:[\-/][A-Z0-9]+){{0,4}}){_NO_UNIT}", digits=5, hints=("#", "№", "no."), code=True),
    pattern("letters, year and serial number", "RECORD", "Pathology {S23-10452} shows",
            r"(?<![A-Za-z0-9\-/.])[A-Z]{1,4}-?\d{2,4}-\d{4,8}(?![A-Za-z0-9.])", digits=6, hints=("-",), code=True),
    # except beds, models and signs
    pattern("code behind any Chinese word that ends in 号", "RECORD", "她的住院号我记得是{1002345}",
            rf"(?<![床型批信括符逗问引冒分句文楼房挡0-9一二三四五六七八九十])(?:号码?|编码|证号|ID)(?:[（(][^）()]{{1,8}}[）)])?{_ZH_GAP}(?P<phi>{_ZH_CODE})", digits=3, hints=("号", "编码", "id"), code=True),
    pattern("code behind a Chinese thing that has one", "RECORD", "病理{2023-11827}提示",
            rf"(?:{_THINGS_ZH})[ :#]{{0,3}}(?:[Nn][Oo][.:]? ?)?(?P<phi>(?=(?:[A-Za-z\-/]{{0,3}}\d){{5}}){_ZH_CODE})(?![例人份个元次年月万%])", digits=5, code=True),
    pattern("last digits in Chinese", "RECORD", "住院号后6位是{004471}",
            r"(?:尾号|后[三四五六3-6]位)(?:数字?)?[是为 :]{0,3}(?P<phi>\d{3,6})(?!\d)", digits=3, hints=("尾号", "位")),
    pattern("number of a Chinese certificate", "RECORD", "军官证 {南字第1234567号}",
            r"(?P<phi>[\u4e00-\u9fff]字第 ?\d{5,9} ?号)", digits=5, hints=("字第",)),
    pattern("licence plate behind its name", "PLATE", "her plate {7KDL 493} is old",
            r"\b(?i:plates?|registration|reg)(?: (?:number|no\.?|is))?[ :#]{1,3}(?P<phi>(?=[A-Z ]{0,6}\d)[A-Z0-9]{2,4}[ \-]?[A-Z0-9]{2,4})(?![A-Za-z0-9])", digits=1, hints=("plate", "reg")),
    pattern("reference of a part with dots", "RECORD", "REF {01.32.407SH} used",
            r"\b(?:REF|LOT|SN|UDI)[ :#]{1,3}(?P<phi>(?=[A-Z.\-]{0,6}\d)[A-Z0-9]+(?:[.\-/][A-Z0-9]+){1,5})", digits=3),
    pattern("letter and groups of three digits", "RECORD", "A-number {A 209 481 773} given",
            r"(?<![A-Za-z0-9])(?P<phi>[A-Z][ \-]?\d{3}[ \-]\d{3}[ \-]\d{3})(?![\d.])", digits=9),
    pattern("code before 号", "RECORD", "{ZY2023110788}号患者",
            r"(?<![A-Za-z0-9])(?P<phi>[A-Z]{1,4}\d{6,14})号", digits=6, hints=("号",)),
    pattern("code of letters and digits", "RECORD", "the pump {PVX928374S} beeps",
            r"(?<![A-Za-z0-9\-_./])(?<!准字)(?!(?:NCT|GSE|GSM|PMID|PMC|ISO|ICD|CYP|HLA|COVID|EC|ATC|CAS|DOI)-?\d)(?:[A-Z]{1,4}-?\d{6,14}[A-Z]{0,2}|\d{6,12}(?!(?:IU|U|ML|MG|KG|UG|K|M|X|G|L|W|H|D)(?![A-Za-z0-9]))[A-Z]{1,2}|[A-Z]{2,5}(?:-\d{3,}){2,3}|[A-Z]{1,4}\d{4,8}-\d{2,6})(?![A-Za-z0-9%])(?![.,]\d)", digits=6, code=True),
    pattern("code in groups behind its cue", "RECORD", "policy no. {XKJ 4482 9917}, paid",
            rf"\b(?i:{_CUES})\b\.?(?: (?i:no\.?|number|num|id)|:| ?#)[ :#]{{0,2}} ?(?P<phi>(?:[A-Z]{{1,5}} )?\d{{2,5}}(?: \d{{2,5}}){{1,4}}(?: [A-Z]{{1,2}})?)(?![\dA-Za-z]|[.,/]\d){_NO_UNIT}", digits=5),
    pattern("IBAN", "IBAN", "to {GB82 WEST 1234 5698 7654 32}",
            r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])", digits=2, flags=re.I, code=True),
)
# fmt: on
