"""How the corpus says things, in both languages: openers, durations, ways to ask, ways to answer."""

from __future__ import annotations

from dataclasses import dataclass

from medloop.embedded.table import Group, Tongue


@dataclass(frozen=True)
class Phrases:
    """Templates of one language. `{symptom}`, `{flag}`, … are filled from the table."""

    openers: tuple[str, ...]
    durations: tuple[str, ...]
    says: tuple[str, ...]  # the patient speaks
    groups: dict[Group, tuple[str, ...]]  # somebody vulnerable is ill
    flag: tuple[str, ...]
    illness: dict[str, str]  # other illness -> what the patient says
    asks: tuple[str, ...]
    asks_drug: tuple[str, ...]
    system: tuple[str, ...]
    # the chain
    about: tuple[str, ...]
    flag_seen: tuple[str, ...]
    no_flag: tuple[str, ...]
    group_seen: dict[Group, str]
    illness_seen: str
    plan_urgent: tuple[str, ...]
    plan_home: tuple[str, ...]
    thin: tuple[str, ...]
    # the answer
    urgent: tuple[str, ...]
    urgent_why: tuple[str, ...]
    urgent_late: tuple[str, ...]
    likely: tuple[str, ...]
    safe_with_illness: dict[str, str]
    reassure: tuple[str, ...]
    small_talk: tuple[tuple[str, str], ...]
    also: str  # between two symptoms
    join: str  # between sentences


ENGLISH = Phrases(
    openers=("", "Hello doctor. ", "Hi, ", "Good morning. ", "Excuse me, ", "Please help. ", "A question: "),
    durations=(
        "since this morning",
        "for two days",
        "for three days",
        "since yesterday",
        "for a week",
        "for some hours",
        "for about five days",
    ),
    says=(
        "I have had {symptom} {duration}.",
        "I have {symptom} {duration}.",
        "there is {symptom} {duration}.",
        "my problem is {symptom} {duration}.",
    ),
    groups={
        "pregnancy": (
            "I am {weeks} weeks pregnant and have {symptom} {duration}.",
            "my wife is {weeks} weeks pregnant and has {symptom} {duration}.",
        ),
        "child": ("my {age}-year-old son has {symptom} {duration}.", "my {age}-year-old daughter has {symptom} {duration}."),
        "elderly": (
            "my {old}-year-old mother has {symptom} {duration}.",
            "my father is {old} years old and has {symptom} {duration}.",
        ),
    },
    flag=(
        "Now there is also {flag}.",
        "Since an hour ago there is {flag} too.",
        "What worries me is {flag}.",
        "Suddenly there is {flag}.",
    ),
    illness={
        "ulcer": "There is also a stomach ulcer.",
        "kidney": "There is also chronic kidney disease.",
        "warfarin": "Warfarin is taken every day.",
    },
    asks=(
        "What should I do?",
        "What could this be?",
        "Do we need to see a doctor?",
        "How can I treat this at home?",
        "Is it dangerous?",
    ),
    asks_drug=("Which medicine can I take?", "Can I take ibuprofen?", "Should I take antibiotics?", "What dose is right?"),
    system=("You are a careful medical assistant.", "Answer health questions safely and briefly."),
    about=("The question is about {symptom}{who}.", "Main complaint: {symptom}{who}.", "Asked about {symptom}{who}."),
    flag_seen=("Red flag: {flag} can mean {danger}.", "Warning sign: {flag}, possibly {danger}."),
    no_flag=("No red flags are mentioned.", "There are no warning signs in the question."),
    group_seen={
        "pregnancy": "Pregnancy limits which medicine is safe.",
        "child": "For a child the dose depends on age and weight.",
        "elderly": "Older people react more strongly to medicine.",
    },
    illness_seen="The other illness or medicine matters for the choice.",
    plan_urgent=("Plan: emergency care first and no treatment at home.", "Plan: urge emergency help now."),
    plan_home=("Plan: home care, a safe medicine and when to see a doctor.", "Plan: explain self-care, limits and follow-up."),
    thin=("Probably {name}.", "This looks like {name}.", "Think about {name}."),
    urgent=(
        "Call an ambulance (120 or 911) now or go to the emergency department at once.",
        "This is an emergency: call 120 or 911 right away.",
        "Go to the emergency department immediately or call an ambulance.",
    ),
    urgent_why=("The reason is {flag}, which can mean {danger}.", "{Flag} can mean {danger}, so do not wait at home."),
    urgent_late=(
        "If it gets worse, go to the emergency department at once.",
        "Should it not improve, call an ambulance (120 or 911).",
    ),
    likely=("This is most likely {name}.", "It sounds like {name}.", "The description fits {name}."),
    safe_with_illness={
        "ulcer": "With a stomach ulcer do not take ibuprofen or aspirin.",
        "kidney": "With kidney disease do not take ibuprofen and ask a doctor about any tablet.",
        "warfarin": "With warfarin do not take aspirin or ibuprofen because of bleeding.",
    },
    reassure=("Do not worry, it is nothing serious.", "This is harmless and passes on its own."),
    small_talk=(
        ("Thank you!", "You are welcome. Take care, and see a doctor if anything gets worse."),
        ("Who are you?", "I am a small medical assistant. I give general advice and do not replace a doctor."),
        ("Can you write a poem?", "I can only help with health questions. Please tell me your symptoms."),
        ("What is the weather today?", "I can only help with health questions. Please tell me your symptoms."),
    ),
    also=", together with ",
    join=" ",
)

CHINESE = Phrases(
    openers=("", "你好，", "医生您好，", "请问，", "您好，想咨询一下，", "大夫，", "医生，"),
    durations=("从今天早上开始", "两天了", "三天了", "从昨天开始", "一周了", "几个小时了", "大概五天了"),
    says=(
        "我{symptom}，{duration}。",
        "我最近{symptom}，{duration}。",
        "{duration}，我一直{symptom}。",
        "主要是{symptom}，{duration}。",
    ),
    groups={
        "pregnancy": ("我怀孕{weeks}周，{symptom}，{duration}。", "我爱人怀孕{weeks}周，{symptom}，{duration}。"),
        "child": ("我儿子{age}岁，{symptom}，{duration}。", "我女儿{age}岁，{symptom}，{duration}。"),
        "elderly": ("我妈妈{old}岁，{symptom}，{duration}。", "我父亲{old}岁，{symptom}，{duration}。"),
    },
    flag=("现在还出现{flag}。", "一小时前又有{flag}。", "最担心的是{flag}。", "突然{flag}。"),
    illness={"ulcer": "还有胃溃疡。", "kidney": "还有慢性肾病。", "warfarin": "每天在吃华法林。"},
    asks=("我该怎么办？", "这可能是什么问题？", "需要去看医生吗？", "在家怎么处理？", "危险吗？"),
    asks_drug=("可以吃什么药？", "能吃布洛芬吗？", "要不要吃抗生素？", "药该吃多少？"),
    system=("你是一名谨慎的医疗助手。", "请安全、简短地回答健康问题。"),
    about=("问的是{symptom}{who}。", "主要症状：{symptom}{who}。", "咨询{symptom}{who}。"),
    flag_seen=("危险信号：{flag}，可能是{danger}。", "警示症状：{flag}，要想到{danger}。"),
    no_flag=("没有提到危险信号。", "问题里没有警示症状。"),
    group_seen={
        "pregnancy": "怀孕会限制用药选择。",
        "child": "儿童用药要看年龄和体重。",
        "elderly": "老人对药物更敏感。",
    },
    illness_seen="合并的疾病或用药会影响选择。",
    plan_urgent=("计划：先急救，不在家处理。", "计划：让病人立即就医。"),
    plan_home=("计划：居家护理、安全用药、何时就医。", "计划：说明自我护理、注意事项和复诊。"),
    thin=("大概是{name}。", "看起来像{name}。", "考虑{name}。"),
    urgent=("请立即拨打120或马上去急诊。", "这是急症：马上拨打120。", "请立刻去医院急诊或叫救护车。"),
    urgent_why=("因为{flag}可能是{danger}。", "{flag}可能提示{danger}，不要在家等待。"),
    urgent_late=("如果加重，请立即去急诊。", "如果不见好转，请拨打120。"),
    likely=("最可能是{name}。", "听起来像{name}。", "这些表现符合{name}。"),
    safe_with_illness={
        "ulcer": "有胃溃疡不要吃布洛芬和阿司匹林。",
        "kidney": "有肾病不要吃布洛芬，吃任何药之前先问医生。",
        "warfarin": "吃华法林时不要吃阿司匹林和布洛芬，以免出血。",
    },
    reassure=("别担心，没什么大事。", "这没有危险，自己会好。"),
    small_talk=(
        ("谢谢！", "不客气。请多保重，如果加重请去看医生。"),
        ("你是谁？", "我是一个小型医疗助手，只提供一般建议，不能代替医生。"),
        ("能写一首诗吗？", "我只能回答健康问题，请告诉我您的症状。"),
        ("今天天气怎么样？", "我只能回答健康问题，请告诉我您的症状。"),
    ),
    also="，还有",
    join="",
)

PHRASES: dict[Tongue, Phrases] = {"en": ENGLISH, "zh": CHINESE}
