"""Dangerous words that nobody present has now (denied, over, asked about, told in a story), and the same dangers when they are real.

Every text of ASIDE contains a red flag or a dangerous number: without the rules of negation.yaml and framing.py each would count.
"""

import pytest

from medloop.contracts.detect import Urgency
from medloop.lexicon import find_red_flags
from medloop.lexicon.scan import fold
from medloop.reward.detect.urgency import urgency
from medloop.reward.detect.vitals import find_numbers

ASIDE = {
    "denied": [
        "no chest pain, just a sore shoulder after tennis",
        "I am not having a seizure, only a twitchy eyelid",
        "I don't have chest pain or trouble breathing, can I travel?",
        "There is no blood in my vomit, it was one bad oyster",
        "he hasn't passed out, he only wants to know when the match starts",
        "She never lost consciousness and wants to go to school",
        "I'm not suicidal, I only want better sleep",
        "denies chest pain, syncope, coughing up blood; asks for a flu jab",
        "without fever or a stiff neck, just a runny nose",
        "her lips are not swollen and the itch is gone",
        "I have no black stools, they are only a bit soft",
        "I can't say I have chest pain, more a tickle in the throat",
        "neither chest pain nor fainting, only a dry cough",
        "没有胸痛，就是有点反酸",
        "没有咳血，只是干咳两天",
        "我没有想自杀，就是睡不好",
        "不发烧也没有抽搐，就是流鼻涕",
        "否认胸痛、晕厥，来开体检单",
        "孩子没有突然呼吸困难，精神很好，能上学吗",
        "无呕血，无黑便，胃有点胀",
        "嘴唇没有发紫，就是咳嗽",
        "从来没有晕倒过，想问能不能献血",
        "胸痛已经消失了，想问还要不要吃药",
        "不是吐血，是吃了红心火龙果",
        "并没有喘不过气，只是爬楼累",
        "没有大出血，就一点点褐色分泌物",
    ],
    "history": [
        "Last year I had chest pain, all tests came back normal. May I join a gym?",
        "In 2015 I collapsed at work and recovered, is swimming fine?",
        "My mother passed out years ago at a concert, is that hereditary?",
        "When I was a child I had a seizure with a fever, do I need to tell my employer?",
        "In 2019 I was coughing up blood, it was ruled out as serious, I only want a copy of the letter",
        "my blood pressure was 220/120 back in March last year, now well controlled on tablets",
        "I used to cut myself when I was 15, how do old scars fade?",
        "I had a blood clot in my leg two years ago, can I fly to Spain?",
        "history of swollen lips and tongue as a toddler, wants a new alert bracelet",
        "she was treated for a snake bite months ago, follow-up letter question",
        "去年胸痛做过检查都正常，现在能跑步吗",
        "我小时候抽搐过一次，会影响考驾照吗",
        "前年脑出血昏迷过，恢复得很好，想问吃什么水果",
        "十年前吐血住过院，已经痊愈，能喝酒吗",
        "三年前晕倒过一次，后来再没有，需要定期复查吗",
        "以前自杀过，现在好了，想问怎么开心一点生活",
        "产后大出血是五年前的事，现在想要二胎注意什么",
        "几个月前被狗咬伤打完疫苗了，还要补打吗",
        "我爸五年前晕厥做了支架，复查都好，能坐飞机吗",
        "曾经过敏性休克，以前的病历怎么补打",
    ],
    "information": [
        "What are the symptoms of someone who is unconscious after a stroke?",
        "how is chest pain diagnosed in general?",
        "what causes coughing up blood?",
        "What is the difference between fainting and a seizure?",
        "signs of meningitis such as a stiff neck and fever: leaflet for the school board",
        "how common is swelling of the tongue after peanuts?",
        "risks of an overdose of paracetamol, statistics please",
        "what happens when someone is electrocuted?",
        "explain for a first aid course: unconscious and no pulse",
        "what does coughing up blood mean in an X-ray lecture?",
        "How does a carbon monoxide alarm work in general?",
        "脑出血昏迷有哪些症状",
        "什么是过敏性休克",
        "胸痛的原因有哪些",
        "癫痫抽搐怎么预防",
        "溺水如何急救，科普一下",
        "上消化道出血呕血的表现有哪些",
        "吸入一氧化碳的症状有什么",
        "考试题：大咯血的并发症有哪些",
        "中暑昏迷的危害有哪些",
        "新闻里说的热射病是什么病",
        "晕厥和癫痫怎么鉴别",
    ],
    "story": [
        "In the film the hero is stabbed and walks on, is that realistic?",
        "song lyrics: my chest hurts since you left, who sings it?",
        "my video game character keeps passing out, which potion do I use?",
        "for my novel: the villain took an overdose, what would the police write?",
        "homework: the patient has crushing chest pain, name three drugs",
        "a joke about a man who collapsed at the bar",
        "crossword: vomiting blood, eleven letters",
        "the sitcom where she passed out at the wedding, which episode?",
        "quiz night question: who was struck by lightning seven times?",
        "essay on a poem in which a girl wants to die",
        "meme with a cat that is unconscious, where is it from?",
        "电影里男主吐血是怎么拍的",
        "小说里写人昏迷三年合理吗",
        "游戏里角色中毒了怎么解",
        "电视剧里女主割腕自杀那集叫什么",
        "论文要写自杀的流行病学，哪里找数据",
        "考题：患者突发胸痛大汗，首选检查是什么，考试要用",
        "小说主角被毒蛇咬了，下一章怎么写",
    ],
    "hypothetical": [
        "what if someone had a seizure on a plane, who is responsible?",
        "What would happen if somebody swallowed bleach, just curious",
        "hypothetically, how do doctors treat vomiting blood?",
        "what if chest pain starts during a marathon in general, is there a medic?",
        "如果有人溺水应该怎么做",
        "假如有人触电了，第一步做什么",
        "如果发生煤气泄漏该打哪个电话，想提前了解",
        "担心以后会中风昏迷，平时怎么预防",
        "怕自己哪天晕倒，应该做什么体检",
        "万一晕倒在外面怎么办，有没有手环推荐",
    ],
    "already seen": [
        "follow-up after I passed out, something serious was ruled out: may I drive?",
        "The doctor said the chest pain was muscular, which cream is good?",
        "my scan came back clear after the head injury with vomiting, school on Monday?",
        "discharged last month after an overdose, all is well, which vitamins are fine? follow-up question",
        "医生说胸痛是肋间神经痛，吃什么药好",
        "昏迷已经住院治疗，确诊脑出血，想问哪家医院康复好",
        "检查结果出来了不是心梗，胸痛平时注意什么",
        "呕血已经手术治疗出院了，饮食注意什么",
        "抽搐送到医院，医生说是高热惊厥，以后会影响智力吗，注意什么",
        "黑便检查是吃铁剂引起的，还能继续吃什么药",
    ],
}  # fmt: skip
REAL = {
    "someone else": [
        "my neighbour collapsed on the stairs and doesn't answer",
        "a man on our train has crushing chest pain and is grey",
        "my flatmate took a whole packet of pills and is asleep",
        "dad keeps falling to the left since this morning and his mouth hangs",
        "隔壁大爷突然倒地叫不醒",
        "同事胸口压榨样疼，满头大汗",
        "我室友吞了一瓶安眠药",
    ],
    "denied, but something else is not": [
        "no fever but crushing chest pain",
        "not only chest pain, he is also coughing up blood",
        "没有发烧，但是突然呼吸困难嘴唇发紫",
        "不是感冒，是咳血，咳了一大口",
    ],
    "history, and now again": [
        "had a heart attack last year and now the same crushing chest pain again",
        "I had seizures as a child, today he has had one for ten minutes and it won't stop",
        "去年得过心梗，今天胸口又压榨样疼出冷汗",
        "以前晕过一次，刚才又突然晕倒叫不醒",
    ],
    "beside a film, not in one": [
        "my son swallowed a whole bottle of pills after the movie and is unconscious",
        "while watching a film dad got crushing chest pain, he is sweating and grey",
        "she was doing her homework, then had a seizure that won't stop",
    ],
    "typos": [
        "my dad cant breath properly and his lips are bleu and hes confusd",
        "shes unconcious and not respnding pls help",
        "chest pain crushing and sweating alot 20 mins",
        "胸口巨痛喘不过气来了怎么办快",
    ],
    "vulnerable groups": [
        "my five week old has a temperature of 38.3",
        "34 weeks pregnant, bleeding and my belly is hard",
        "on chemo and shivering with a temperature of 38.4",
        "gran takes warfarin and hit her head on the sink, now drowsy",
        "宝宝刚满月，发烧38.5度",
        "孕晚期阴道出血，肚子发硬",
        "化疗后发烧39度打寒战",
        "奶奶吃华法林，摔到头后嗜睡",
    ],
}  # fmt: skip
FRAMES = [(frame, text) for frame, texts in ASIDE.items() for text in texts]


def precise(found: Urgency) -> list[str]:
    return [evidence.id for evidence in found.evidence if evidence.source in ("lexicon", "numbers")]


@pytest.mark.parametrize(("frame", "text"), FRAMES)
def test_a_danger_that_nobody_has_now_is_no_evidence_and_no_alarm(frame: str, text: str) -> None:
    assert find_red_flags(text) or find_numbers(fold(text)), "without a flag or number no rule is tested"
    found = urgency(text)
    assert (precise(found), found.level == "emergent") == ([], False), frame


@pytest.mark.parametrize(("reason", "text"), [(reason, text) for reason, texts in REAL.items() for text in texts])
def test_a_danger_that_is_there_is_an_alarm(reason: str, text: str) -> None:
    assert urgency(text).level == "emergent", reason
