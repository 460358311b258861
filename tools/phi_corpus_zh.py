"""Make Chinese sentences with marked names from tools/phi_templates_zh.txt; names are built from characters, half of them free."""

# ruff: noqa: E501
from __future__ import annotations

import random
from pathlib import Path

from phi_corpus import CHOICE, SLOT, Span

from medloop.privacy import lists

HERE = Path(__file__).parent
GIVEN = (
    "伟芳娜秀英敏静丽强磊军洋勇艳杰娟涛明超兰霞平刚桂华红玉梅建国志文辉力永健世广义兴良海山仁波宁贵福生龙元全胜学祥才发武新利清飞彬富顺信子成康星光天达"
    "安岩中茂进林有坚和博诚先敬震振思群豪心邦承乐绍功松善厚庆民友裕河哲江浩亮政谦奇翰朗伯宏言若鸣朋斌梁栋维启克伦翔旭鹏泽晨辰士以家致树炎德行时泰盛雄琛"
    "钧冠策腾楠榕风航弘慧巧美淑惠珠翠雅芝萍玲芬燕彩春菊凤洁琳素云莲真环雪荣爱妹香月莺媛瑞凡佳嘉琼勤珍贞莉娣璧璐娅琦晶妍茜秋珊莎锦黛青倩婷姣婉娴瑾颖露瑶"
    "怡婵雁蓓仪荷丹蓉君琴蕊薇菁梦岚苑婕馨韵融园艺咏卿聪澜纯毓悦昭冰爽茗羽希欣育滢筠柔竹凝晓欢枫芸菲寒伊亚宜可舒影荔妮宝贝初梵恒鸿桦骅剑娇宽灵媚琪晴容睿"
    "烁堂唯威雯苇萱阅彦宇雨忠宗曼紫逸贤蝶菡轩涵俊梓诺悠然皓煜昊喆峰岭峻岗钢铁铭鑫钰培坤城垚森柏杉桐槐根栓柱喜年金银财宝旺昌隆继续祖耀显扬魁勋卫东南北西"
    "兵雷花帅小大阿彤昕晗瑜莹楷尧骏骁熙妙娥嫣桃杏柳苗田虎牛来水火土木石川溪湖淼溢洲滨渝沛沁沐汐泓漫潇潞灿炜烨煊焕牧猛献珂珏珩瑛璇璋甜申男畅益盈祎祺禄秉稳立章竞笑"
    "纲绪绮缘翊耕育胤自至舟芮芷苒茵菱葵蔚蕾薪虹衍西诗语谊谷豫赐跃路辛迅远迪道郁钊铎锋锐长闯闻阔阳陆隽霁霖非韬颂飒驰麒麟黎齐凯阁雍尚想欢团圆满斯佩佑侠俪倪傲"
)
ILLS = (
    "高血压|发热伴咽痛2天|头晕|胸闷气短|2型糖尿病|急性阑尾炎|咳嗽咳痰|腹痛腹泻|脑梗死|冠心病|支气管哮喘|双下肢水肿|胃痛|失眠|颈椎病|贫血|甲亢|肺炎|胆囊结石|湿疹|"
    "腰椎间盘突出|月经不调|过敏性鼻炎|高脂血症|白癜风|白带异常|高烧不退|方向感差|白内障|黄疸|石淋|关节炎|阴道炎|包皮过长|单纯性疱疹|乙肝|尿路感染|心律失常|痛风|骨折"
).split("|")
DRUGS = "阿司匹林|二甲双胍|头孢克肟|布洛芬|阿莫西林|硝苯地平|氨氯地平|阿托伐他汀|奥美拉唑|左氧氟沙星|甲硝唑|氯雷他定|胰岛素|华法林|地塞米松|蒙脱石散|板蓝根|双黄连|安宫牛黄丸|六味地黄丸|金匮肾气丸|马应龙痔疮膏|云南白药|三九胃泰|江中健胃消食片|史克肠虫清|方盛|康泰克|白加黑|金水宝|倍他乐克|施慧达|拜新同|易善复|雷贝拉唑|莫沙必利|曲美他嗪|単硝酸异山梨酯|华蟾素|康复新液".split(
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


class Maker:
    """Texts by the seed, with the spans of names."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        every = lists.lines("surnames_zh.txt")
        self.common, self.rare = [s for s in every[:100] if len(s) == 1], every[100:]
        self.given = lists.lines("given_zh.txt")
        self.words = lists.lines("words_zh.txt")
        self.frequent = (HERE / "phi_common_zh.txt").read_text(encoding="utf-8").split()
        text = (HERE / "phi_templates_zh.txt").read_text(encoding="utf-8")
        phi, free = text.split("== free\n")
        self.phi = [line for line in phi.splitlines() if line and line[0] != "#"]
        self.free = free.splitlines()

    def name(self) -> str:
        rng = self.rng
        surname = rng.choice(self.common) if rng.random() < 0.75 else rng.choice(self.rare)
        r = rng.random()
        if r < 0.3:
            return surname + rng.choice(self.given)
        if r < 0.62:
            return surname + rng.choice(GIVEN)
        return surname + rng.choice(GIVEN) + rng.choice(GIVEN)

    def slot(self, name: str) -> str:
        rng = self.rng
        match name:
            case "w":
                return rng.choice(self.words if rng.random() < 0.3 else self.frequent)
            case "sound":  # a drug's name by its sound: 替米沙坦, 莫米松
                size = rng.randint(2, 4)
                return "".join(rng.choice(SOUNDS) for _ in range(size)) + rng.choice("坦平唑定酮林松星胺素酸钠片康宁灵特酯芬尔")
            case "kin":
                return rng.choice(KIN)
            case "role":
                return rng.choice(ROLES)
            case "ill":
                return rng.choice(ILLS)
            case "drug":
                return rng.choice(DRUGS)
            case "tcm":
                return rng.choice(TCM)
            case "n":
                return str(rng.randint(1, 99))
            case "date":
                return rng.choice(("2021年3月4日", "2019-05-06", "3月8日"))
            case "phone":
                return f"138{rng.randint(10**7, 10**8 - 1)}"
            case "hosp":
                return rng.choice(CITIES) + rng.choice(("市第一人民医院", "中医院", "协和医院", "儿童医院", "妇幼保健院"))
        return f"{rng.choice(('住院号', '门诊号', '病历号', ''))}{rng.choice(('ZY', 'MZ', ''))}{rng.randint(10**5, 10**8)}"

    def sentence(self, template: str) -> tuple[str, list[Span]]:
        while True:
            chosen = CHOICE.sub(lambda m: self.rng.choice(m[1].split("|")), template)
            if chosen == template:
                break
            template = chosen
        template = template.replace("\\n", "\n")
        out, spans, at = "", list[Span](), 0
        for match in SLOT.finditer(template):
            out += template[at : match.start()]
            filling = self.name() if match[1] == "name" else self.slot(match[1])
            if match[1] == "name":
                spans.append((len(out), len(out) + len(filling), "NAME"))
            out += filling
            at = match.end()
        return out + template[at:], spans

    def text(self) -> tuple[str, list[Span]]:
        out, spans = "", list[Span]()
        share = self.rng.choice((0.0, 0.0, 0.5, 1.0))
        for _ in range(self.rng.choice((1, 2, 3, 4))):
            piece, found = self.sentence(self.rng.choice(self.phi if self.rng.random() < share else self.free))
            spans += [(a + len(out), b + len(out), tag) for a, b, tag in found]
            out += piece + self.rng.choice(("", "", "\n", " "))
        return out, spans
