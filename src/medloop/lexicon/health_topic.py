"""Whether a sentence is about health, by broad word lists that cover what a doctor would say to a patient.

    is_about_health("Rest and drink enough water.")                        -> True
    is_on_topic("It gets better by itself.", "Will my knee get better?")   -> True: it shares words with the question
    is_on_topic("Four models settled on the upper end.", "Is it cancer?")  -> False

Four places need it: a sentence about health may use words of grading (`teacher/injection/grader_address.py`), only text about
health or about the question can be evidence for a good mark (`teacher/verdict.py`), only such text is a point of an answer
(`reward/points.py`), and only such text can be risky advice in the eyes of the learnt judge (`reward/rules/risk.py`).
"""

import re
from functools import lru_cache

from medloop.patterns import lazy_pattern

_BODY = r"""
abdom\w* ankle\w* arms? arter\w+ back belly bladder blood\w* bod(?:y|ies|ily) bones? bowels? brain\w* breast\w* breath\w*
cardi\w+ cells? chest colon ears? elbow eyes? faces? feet fingers? foot gene(?:s|tic\w*)? gums? hair hands? heads? hearts? hips?
hormon\w+ immun\w+ intestin\w+ joints? kidneys? knees? legs? ligament\w* limbs? liver lungs? lymph\w* mouth muscl\w+ nails? neck
nerv\w+ nos(?:e|al) oral pelvi\w+ proteins? pulse rectal respirat\w+ shoulders? skin spin(?:e|al) stomach teeth tendons? throat
thyroid tissues? tongue tooth uter\w+ vagin\w+ veins? vessels? vision wrist\w* digestive circulat\w+ chromosom\w+ mutation\w*
enzyme\w*
"""
_ILL = r"""
ache\w* allerg\w+ an(?:a)?emi\w+ anxi\w+ appetite arthritis asthma\w* attacks? bacteri\w+ bleed\w* blisters? bruis\w+ burn\w*
cancer\w* cholesterol chronic cold complications? constipation cough\w* cramp\w* deficien\w+ dehydrat\w+ depress\w+ diabet\w+
diarrh\w+ diseases? disorders? dizz\w+ emotion\w* episodes? faint\w* fatigue feelings? fever\w* flu fractur\w* grie(?:f|v\w+)
harm\w* headaches? heal\w* high-risk hurt\w* ill(?:ness\w*)? infect\w+ inflam\w+ injur\w+ itch\w* leuk\w+ lonel\w+ lumps?
malignan\w+ migraine\w* moods? naus\w+ numb(?:ness)? obes\w+ overdos\w+ pain(?:s|ful\w*|killers?|less)? palpitations? poison\w*
rash\w* relaps\w* sad(?:ness)? sarcoma\w* seizure\w* severe shock sick\w* signs? sor(?:e|es|eness) sprain\w* staging strain\w*
stress\w* stroke\w* suicid\w+ swell\w* swollen symptoms? syndromes? tired\w* toxic\w* tremor\w* tumou?rs? ulcer\w* unwell
virus\w* viral vomit\w* weak\w* worsen\w* worse wound\w* \w+(?:itis|osis|oma|emia|pathy|algia|uria|plegia|ectomy|opathy|trophy)
"""
_CARE = r"""
a&e acute adults? ambulance antibiot\w+ aspirin bab(?:y|ies) bandag\w* bath\w* bed birth biops\w+ breastfe\w+ calories
car(?:e|er|ers) catheter\w* caus\w+ check-up chemo\w+ child\w* clinic\w* compress conditions? consult\w* contagious counsel\w+ ct
cur(?:e|es|ed|able) danger\w* diagnos\w+ diet\w* doctors? dos(?:e|es|age)s? drink\w* driv(?:e|ing) drugs? eat\w* emergenc\w+
exam(?:ination|ined)\w* exercis\w* fluids? food\w* gp health\w* heart-healthy hormone\w* hospital\w* hydrat\w+ hygiene ibuprofen
ice inhaler\w* inject\w+ insulin lab label leaflet lifestyle massage\w* meals? medic\w+ mg midwi\w+ ml mmhg mmol monitor\w* mri
newborn\w* nurs\w+ nutri\w+ ointment\w* operation\w* outpatient overtriage paracetamol patient\w* pediatr\w+ pharmac\w+
physic\w+ pills? pregnan\w+ prescri\w+ prevent\w* prognosis protect\w* psych\w+ radiation recover\w* referr\w* rehab\w* remed\w+
rest rests resting safely salt scan\w* screen\w* sex\w* sleep\w* smok\w+ specialist\w* steroid\w* sugar\w* supplement\w* surg\w+
survival symptom-free tablets? temperature tests? therap\w+ transplant\w* trauma treat\w* ultrasound urgent\w* urin\w+ vaccin\w+
vitamin\w* walk\w* wash\w* water weeks? weight x-rays? days? hours? months? trials? mortality sedimentation pressure study
studies risk\w* \w+(?:mycin|cillin|statin|olol|pril|sartan|azole|pine|zepam|profen)
"""
# Medicine and illness of the body: what small talk with unhappy people does not have.
_PHYSICAL = r"""
allerg\w+ antibiot\w+ aspirin asthma bab(?:y|ies) bleed\w* cancer\w* chemo\w+ cough\w* diabet\w+ diagnos\w+ diarrh\w+ dizz\w+
dos(?:e|es|age)s? faint\w* fever\w* ibuprofen infect\w+ inhaler\w* inject\w+ insulin medic\w+ mg ml newborn numb\w* ointment\w*
overdos\w+ paracetamol pills? pregnan\w+ prescri\w+ rash\w* seizure\w* steroid\w* stroke\w* suicid\w+ supplement\w* surg\w+
swell\w* swollen tablets? toddler treat\w* vaccin\w+ vitamin\w* vomit\w* \w+(?:itis|osis|oma|emia|pathy)
\w+(?:mycin|cillin|statin|olol|pril|sartan|azole|pine|zepam|profen)
"""
# Every alternative begins with a character, not with a class: then a search jumps to the characters that can begin one.
_HAN = (
    "疼|痛|血|心[率脏肌悸慌电]|肝|肾|肺|胃|肠|脾|胆|脑|骨|皮肤|皮疹|肌|关节|腰|腿|膝|颈|胸|腹|背[部痛疼]|头[晕疼痛部皮发]"
    "|眼|耳|鼻|喉|咽|口腔|牙|舌|手[术指臂腕脚部麻心]|脚|足[部底跟]|乳|子宫|卵巢|阴[道茎囊虚部]|月经|经期|前列腺|甲状腺|免疫"
    "|神经|消化|呼吸|循环|泌尿|"
    "内分泌|淋巴|激素|代谢|细胞|组织|器官|基因|蛋白|系统性|诊|收缩|检[查验测]|化验|B超|b超|彩超|拍片|c(?<![a-z]c)t(?![a-z])"
    "|核磁|体[重温检质]|病|症|炎|癌|瘤|肿|溃疡|结石|囊|增生|就医|医院|医[生师]|大夫|急救|120|剂量|治[疗好愈]|疗[法效程]"
    "|手术|用药|服服|口服|内服|服用|药|"
    r"片(?<=[半一两二三四\d]片)|药片|胶囊|毫克|m(?<![a-z]m)g(?![a-z])|注射|输液|说明书|疫苗|感染|细菌|病毒|发[热烧炎作]|高热|咳|痰"
    "|喘|呕|吐|泻|便秘|大便|小便|尿|晕|乏力|疲劳|出汗|过敏|瘙痒|痒|受伤|外伤|损伤|烧伤|烫伤|扭伤|伤口|怀孕|妊娠|孕|产[后前妇检科]|婴"
    "|宝宝|小孩|孩子|儿童|老人|患者|饮食|多吃|少吃|可吃|忌吃|别吃|再吃|吃[点些药饭]|多喝|少喝|可喝|喝喝|喝[点些水酒]|营养|维生素|水果|蔬菜|"
    "辛辣|清淡|睡眠|睡|休息|运动|锻炼|吸烟|戒[烟酒]|酒|保暖|卫生|指标|血[压糖脂]|恢复|康复|预防|健康|身体|紧急|急诊|危险"
    "|密切观察|护理|调[理养]|按摩|热敷|冷敷|中药|西药|情绪|心理|压力|焦虑|抑郁|性[生功]|精[子液]|遗传|风寒|虚寒|清热|退热|内热"
    "|湿[热疹气]|气虚|上火|补[充肾气血]"
)
_WORDS = "|".join((_BODY + _ILL + _CARE).split())
_HEALTH = lazy_pattern(rf"\b(?:{_WORDS})\b|{_HAN}", re.IGNORECASE)
_HEALTH_WORD = lazy_pattern(_WORDS)
_BODILY = lazy_pattern(rf"\b(?:{'|'.join((_BODY + _PHYSICAL).split())})\b", re.IGNORECASE)
HAN_HEALTH = lazy_pattern(_HAN)
_SMALL = frozenset(
    "what when this that with have from your about should does would could which there their will they them been were being than "
    "then give answer best question very much more most some like other into over only also just after before because".split()
)


def is_about_health(text: str) -> bool:
    return _HEALTH.search(text) is not None


def is_about_body(text: str) -> bool:
    """Whether an English text names a part of the body, its illness or a medicine; "It hurts, but it gets better" does not."""
    return _BODILY.search(text) is not None


@lru_cache(maxsize=1 << 15)
def is_health_word(word: str) -> bool:
    """Whether one English word, in lower case, is about health. Words come again and again, so the answers are cached."""
    return _HEALTH_WORD.fullmatch(word) is not None


def is_on_topic(text: str, question: str) -> bool:
    """About health, or in words of the question: a word of four letters, or two Chinese characters in a row."""
    return is_about_health(text) or bool(_content(text) & _content(question))


def _content(text: str) -> set[str]:
    words = {word for word in re.findall(r"[a-z]{4,}", text.casefold()) if word not in _SMALL}
    return words | {run[i : i + 2] for run in re.findall(r"[\u3400-\u9fff]{2,}", text) for i in range(len(run) - 1)}
