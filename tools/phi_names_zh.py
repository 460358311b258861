"""Chinese names by kind, for training: common and rare surnames, words that are names, other peoples, foreign names, nicknames.

A network that has only seen a surname with a given name finds nothing else. `NameMaker.whole` draws each kind by its share.
"""

# ruff: noqa: E501
from __future__ import annotations

import random
from pathlib import Path

from phi_lists import held_out

from medloop.privacy.phi import lists
from medloop.privacy.phi.chinese.words import RARE_SURNAMES, WORD_SURNAMES

HERE = Path(__file__).parent
GIVEN = (
    "伟芳娜秀英敏静丽强磊军洋勇艳杰娟涛明超兰霞平刚桂华红玉梅建国志文辉力永健世广义兴良海山仁波宁贵福生龙元全胜学祥才发武新利清飞彬富顺信子成康星光天达"
    "安岩中茂进林有坚和博诚先敬震振思群豪心邦承乐绍功松善厚庆民友裕河哲江浩亮政谦奇翰朗伯宏言若鸣朋斌梁栋维启克伦翔旭鹏泽晨辰士以家致树炎德行时泰盛雄琛"
    "钧冠策腾楠榕风航弘慧巧美淑惠珠翠雅芝萍玲芬燕彩春菊凤洁琳素云莲真环雪荣爱妹香月莺媛瑞凡佳嘉琼勤珍贞莉娣璧璐娅琦晶妍茜秋珊莎锦黛青倩婷姣婉娴瑾颖露瑶"
    "怡婵雁蓓仪荷丹蓉君琴蕊薇菁梦岚苑婕馨韵融园艺咏卿聪澜纯毓悦昭冰爽茗羽希欣育滢筠柔竹凝晓欢枫芸菲寒伊亚宜可舒影荔妮宝贝初梵恒鸿桦骅剑娇宽灵媚琪晴容睿"
    "烁堂唯威雯苇萱阅彦宇雨忠宗曼紫逸贤蝶菡轩涵俊梓诺悠然皓煜昊喆峰岭峻岗钢铁铭鑫钰培坤城垚森柏杉桐槐根栓柱喜年金银财宝旺昌隆继续祖耀显扬魁勋卫东南北西"
    "兵雷花帅小大阿彤昕晗瑜莹楷尧骏骁熙妙娥嫣桃杏柳苗田虎牛来水火土木石川溪湖淼溢洲滨渝沛沁沐汐泓漫潇潞灿炜烨煊焕牧猛献珂珏珩瑛璇璋甜申男畅益盈祎祺禄秉稳立章竞笑"
    "纲绪绮缘翊耕育胤自至舟芮芷苒茵菱葵蔚蕾薪虹衍西诗语谊谷豫赐跃路辛迅远迪道郁钊铎锋锐长闯闻阔阳陆隽霁霖非韬颂飒驰麒麟黎齐凯阁雍尚想欢团圆满斯佩佑侠俪倪傲"
    "墨熠珮旻昱晟晔暄朔权杭枝柔栩桢梧楚榆歆淇淳渊渺湘湛滔澄瀚炫烽琨琰瑄璟甫痕皎盼砚硕磐祯禹秦稚穆竣筱筝简翎翩耘肃臻舜艾芊芙苏若英荃荟莞菀萌葆蒙蓝薛蘅裴西觅"
    "诚谚贺赫超轶辰逍遥邈郡酉采野钟铮锴锡镇镕镜闵霆霏靖靓颐飘骐骞鲁鸣鹃鹤鹰黛默鼎齐龄升高正本方向阳先立春秋冬夏雨水白露寒霜双重九十一二三五六七八千万百"
)
WORDS = (  # ordinary words that people are called by
    "和平|建设|解放|胜利|光明|向阳|国庆|建军|立春|立冬|小满|谷雨|白露|开心|快乐|永远|平安|健康|幸福|如意|吉祥|富贵|长江|黄河|泰山|天山|朝阳|晨光|春风|春雨|秋月|冬雪|夏天|秋实"
    "|红旗|前进|卫东|爱国|爱民|为民|保国|援朝|跃进|文革|学农|学军|振兴|改革|开放|成功|成才|自强|自立|思想|理想|希望|团结|友谊|诚信|守信|文明|文化|科学|智慧|勇敢|坚强|顺利|安全"
    "|安静|宁静|美丽|漂亮|可爱|温柔|善良|天真|纯洁|清楚|明白|高兴|大海|小草|小雨|大雷|石头|铁柱|栓子|狗剩|二妮|三妹|五一|六一|八一|十月|元旦|中秋|中华|国强|家和|家兴|家宝|家栋"
    "|子墨|子涵|子轩|子萱|梓涵|梓轩|梓萱|欣怡|欣悦|诗涵|诗雨|雨桐|雨欣|雨泽|浩然|浩宇|宇轩|宇航|一诺|一鸣|一凡|一帆|一一|思远|思琪|思源|若曦|若兮|语嫣|语桐|佳怡|佳琪|俊杰|俊熙|博文|博涛|昊天"
    "|皓轩|明轩|明哲|睿|沐宸|沐阳|奕辰|奕泽|可馨|可欣|依诺|依依|婉清|婉婷|晨曦|晓东|晓燕|晓明|小燕|小军|小龙|小芳|大伟|大勇|大力|长生|长顺|长贵|福生|福来|来福|来娣|招娣|引弟|盼弟|根生|水生|火生|金生"
    "|土生|木生|春生|冬生|秋生|夏生|海生|桂生|玉生|宝玉|金玉|满堂|德才|德福|有才|有福|有根|有财|得胜|得志|进喜|进宝|守义|守仁|守礼|世昌|世杰|世平|国平|国安|国栋|国梁|志刚|志明|志远|志高|天明|天佑|天赐"
    "|万里|千里|百川|三元|双喜|双全|四海|五福|七斤|八斤|九妹|阿妹|阿强|阿英|玛丽|安娜|丽莎|安琪|艾米|海伦|莎莎|娜娜|丽丽|婷婷|静静|芳芳|莹莹|晶晶|丹丹|萍萍|玲玲|燕燕|红红|兰兰|梅梅|欢欢|乐乐|豆豆|多多|洋洋|阳阳|宁宁|安安|果果"
).split("|")
DOUBLE = "欧阳 上官 司马 司徒 诸葛 东方 皇甫 慕容 令狐 公孙 夏侯 尉迟 赫连 宇文 长孙 端木 轩辕 申屠 钟离 濮阳 淳于 单于 太史 闻人 独孤 南宫 百里 呼延 东郭 西门 澹台 公冶 宗政 仲孙 鲜于 闾丘 第五 左丘 万俟 拓跋 亓官 司空 公羊 谷梁 梁丘 羊舌 微生 漆雕 巫马 乐正 子车 颛孙 即墨".split()
SELDOM = "仉郗厍乜亓佘佟佴俞倪偰傥冀冉凃刁功勾匡卜卞卯厉句台后员咸哈哱商啜嘉国圭坚垣墨央奚妫姒娄宓官宦寇封尤尧屈展巩巫席库应庾庞延弓归忻思怀恽恭慎户戈戚扈承揭揣支敖敬斛於旷昝明昌昝晁晏智暨朴权来杭松束柏查柯柳栗栾桑桓桂梅检楚楼樊檀次欧步殷毋毕水汝汤汪沃沐沙法泰洪浦海涂淦湛游滑滕漆满漕潮濮烟焦燕牛牟牧狄狐玄班琚瓮甄甘由申留痴白皮盖盘盛益相眭瞿矫石祁祖祝禄离禹种秋税穆空窦竹竺符笪管籍粟糜紫綦缑缪羿翁翟耿聂肖胥能臧舒艾芮苍苌苗苟苻茅荀荆荣荤莘莫菅萨葛葵蒙蒯蒲蓝蓟蔚蔺薄蘧虞蚁衣衡裘褚覃解訾计訚言詹谌谯谷豆贝贡贲费赏赛赵越路車车辛连逄逯邝邢邬那邰邱邴邵邸郄郅郇郎郏郑郜郦郭都鄂鄞鄢鄷酆里野钦钭钮钱铁铎长闵闻阎阙阚阮阳阴隆隋隗雍雒零雷霍青靳鞠鞏韦韶项须顾颜饶馬骆骈高鬱魏鱼鲁鲍鲜鹿麦麻黎黑鼓齐龙龚"
TIBETAN, MONGOL, TURKIC, YI = (line.split() for line in lists.lines("peoples_zh.txt"))
TURKIC_END = "江 汗 克孜 别克 古丽 罕 木 提 兰 尔 夏 娅 拜 坦".split()
JAPANESE = "山田 佐藤 铃木 高桥 田中 渡边 伊藤 中村 小林 加藤 吉田 山本 佐佐木 山口 松本 井上 木村 清水 斋藤 山崎 森田 池田 桥本 阿部 石川 前田 藤田 小川 冈田 后藤 长谷川 村上 近藤 石井 坂本 远藤 青木 西村 福田 太田 三浦 藤原 松田 中岛 上野 竹内 金子 中野 原田 和田 宫本 大野 水野 野口 川崎 增田 小野寺 黑木".split()
JAPANESE_GIVEN = "太郎 一郎 健二 雄一 美纪 花子 由美 惠子 洋子 真由美 直树 翔太 大辅 和也 拓海 优子 香织 智子 千夏 彩香 绫乃 阳菜 莲 结衣 隆 诚 浩二 正雄 久美子 明日香 早纪 里奈 勇人 龙之介 健太郎 奈绪".split()
KOREAN = "金 李 朴 崔 郑 姜 赵 尹 张 林 韩 吴 申 徐 权 黄 安 宋 柳 洪 全 高 文 孙 裴 白 许 南 沈 卢 河 禹 元 玄 蔡 具 成 车 太 表 鞠 奇 千 方".split()
KOREAN_GIVEN = "善姬 英爱 正浩 哲秀 美花 顺子 龙洙 明淑 京子 成日 东哲 贞淑 英姬 昌浩 学哲 莲姬 春姬 相哲 允儿 智恩 敏镐 贤彬 秀贤 在勋 光洙 惠乔 宥真 恩惠 基范 镇宇 仁淑 万植 永焕 太镐 香兰 日善 花子 正洙 银珠".split()
VIET = "阮 陈 黎 范 黄 潘 武 邓 裴 杜 胡 吴 杨 李 丁 段 梁 郑 陶".split()
VIET_MIDDLE = "氏 文 德 玉 光 明 春 友 廷 秋 青 国 维 氏金 氏秋 氏玉 氏红 氏芳".split()
SOUND = "阿埃艾安奥巴班鲍贝本比彼宾波伯博布查楚茨达戴丹道德登狄迪蒂丁杜顿多恩尔法范菲费芬弗福夫盖戈格葛古哈海汉豪赫亨洪华霍基吉加贾简杰金卡凯坎康考科克肯库奎拉莱赖兰朗劳勒雷黎里丽利莉连林琳龙卢鲁伦罗洛吕马玛迈麦曼梅米蜜敏明摩莫默姆穆娜纳奈南内尼妮宁诺欧帕潘佩彭皮珀普奇齐乔切钦琴若萨塞桑森莎沙舍施什史斯苏索塔泰谭坦汤特提图托瓦万威韦维温文沃乌西希锡夏香肖谢辛雅亚延扬伊依因英尤约泽扎詹珍芝朱珠祖佐卓"
FOREIGN_END = "斯 森 曼 尔 特 娜 拉 斯基 诺夫 维奇 娃 逊 德 顿 克 亚 莎 妮 莉 尼 达 托 罗 哈伊 奥 丽 兹 茨 伯格 施密特 琳 卡 泽 金 诺 雅 莱".split()
FOREIGN = "约翰 玛丽 史密斯 琼斯 布朗 威廉 汉斯 安娜 彼得 卡洛斯 伊万 迈克尔 大卫 詹姆斯 罗伯特 苏珊 凯瑟琳 伊丽莎白 穆罕默德 艾哈迈德 阿里 法蒂玛 哈桑 侯赛因 易卜拉欣 奥马尔 阿米娜 玛利亚 何塞 胡安 佩德罗 米格尔 安东尼奥 让 皮埃尔 玛格丽特 娜塔莎 谢尔盖 德米特里 奥尔加 尤里 弗拉基米尔 拉杰 普丽娅 库马尔 辛格 夏尔马 帕特尔 汗 阿卜杜拉 卡里姆 尼古拉 朱莉娅 露西 索菲亚 艾玛 奥利维亚 本杰明 丹尼尔 托马斯 马丁 弗兰克 汤姆 杰克 露丝 爱丽丝 珍妮 琳达 麦克 杰森 凯文 保罗 马克 卢卡 恩佐 乔凡尼 朱塞佩 奥卢 恩戈齐 夸梅 阿玛 姆贝基 曼德拉".split()
PET = "狗蛋 二狗 铁蛋 大毛 二毛 三毛 小毛 毛毛 妞妞 丫丫 妮妮 豆豆 豆包 糖糖 果果 米粒 汤圆 小石头 石头 虎子 虎妞 牛牛 壮壮 胖胖 球球 点点 朵朵 贝贝 嘟嘟 乐乐 欢欢 笑笑 蛋蛋 宝儿 大宝 二宝 小宝 囡囡 囝囝 仔仔 细妹 细佬 阿妹 阿弟 大丫 二丫 三丫 四妹 幺妹 老幺 老疙瘩 春妮 秀儿 翠花 铁柱 栓子 柱子 根儿 狗剩 来福 旺财 发财 招弟 盼弟 大壮 二嘎 嘎子 黑子 小黑 小胖 胖墩 小不点 小虎 小龙 小雨 小雪 小月 大军 小军 大勇 小勇 大伟 小伟 桃桃 柚子 可乐 布丁 奶糖 团团 圆圆 轩轩 涵涵 萱萱 晨晨 阳阳 航航 浩浩 宸宸 琪琪 甜甜 心心 悠悠 暖暖 安安 康康 平平 小满 六月 七七 九儿 十一".split()
AFTER_SURNAME = "姐 哥 叔 姨 婶 嫂 伯 爷 奶 妈 婆 公 大娘 大爷 大妈 大姐 大哥 大叔 大婶 大嫂 阿姨 阿婆 阿公 阿伯 阿嬷 老太 老头 老汉 老爷子 老太太 婆婆 公公 师傅 老板 瘸子 胖子 麻子 聋子 秃子 驼背 拐子 老大 老二 老三 老四 老五 家媳妇 家老二 家二小子 家小子 家丫头 家闺女 家的 寡妇 木匠 铁匠 屠夫 裁缝 司机 会计 支书 村长 掌柜 半仙 眼镜".split()
BEFORE_SURNAME = "老 小 大 阿 胖 瘦 黑 憨 二 三".split()
PROVINCES = "宁夏 青海 江苏 江西 安徽 吉林 云南 海南 甘肃 广东 山东 河北 黄山 泰山 华山 恒山 长江 黄河 洛阳 南阳 安阳 南京 成都 武汉 温州 金华 常州 徐州 苏州 石河 沈阳 锦州 钟山 江山 高原 平原 祁连 米兰 柏林 罗马 纽约 华沙".split()


class NameMaker:
    """Names by the seed: surnames by about how frequent they are, given names of all generations, and the rarer kinds."""

    def __init__(self, rng: random.Random, half: str = "all") -> None:
        self.rng, self.half = rng, half
        self.surnames = lists.lines("surnames_zh.txt")
        self.weights = [1 / (rank + 4) for rank in range(len(self.surnames))]
        self.listed = lists.lines("given_zh.txt")
        self.frequent = [w for w in (HERE / "phi_common_zh.txt").read_text(encoding="utf-8").split() if len(w) <= 2]
        single = {name for name in self.surnames if len(name) == 1}
        self.word_names = [  # words that begin with a surname: 高兴, 白雪, 党参
            *(word for word in lists.lines("words_zh.txt") if len(word) == 2 and word[0] in single),
            *(word for word in self.frequent if len(word) == 2 and word[0] in single),
            *(word for line in lists.lines("never_zh.txt") for word in line.split() if 1 < len(word) < 4),
        ]
        self.pleasant = [word for word in self.word_names if word[-1] in GIVEN and len(word) == 2]

    def surname(self) -> str:
        r = self.rng.random()
        if r < 0.6:
            return self.rng.choices(self.surnames, self.weights)[0]
        return self.rng.choice(self.surnames) if r < 0.93 else self.rng.choice(SELDOM + RARE_SURNAMES)

    def given(self) -> str:
        while True:
            name = self._given()
            if self.half == "all" or (len(name) == 1 and self.half == "seen") or held_out(name) == (self.half == "unseen"):
                return name

    def _given(self) -> str:
        rng, r = self.rng, self.rng.random()
        if r < 0.27:
            return rng.choice(GIVEN)
        if r < 0.75:
            return rng.choice(GIVEN) + rng.choice(GIVEN)
        if r < 0.83:
            return rng.choice(self.listed)
        if r < 0.94:
            return rng.choice(WORDS)
        if r < 0.98:
            return rng.choice(GIVEN) * 2
        return rng.choice(self.frequent)

    def long_given(self) -> str:
        while len(given := self.given()) < 2:
            pass
        return given

    def whole(self) -> str:
        """A name as it stands in a note."""
        r = self.rng.random()
        for share, make in (
            (0.38, self.plain),
            (0.08, self.rare),
            (0.06, self.double),
            (0.15, self.word),
            (0.05, self.any_word),
            (0.1, self.of_people),
            (0.06, self.foreign),
            (0.05, self.long_given),
        ):
            if r < share:
                return make()
            r -= share
        return self.nickname()

    def plain(self) -> str:
        return self.surname() + self.given()

    def rare(self) -> str:
        return self.rng.choice(SELDOM + RARE_SURNAMES + WORD_SURNAMES) + (
            self.long_given() if self.rng.random() < 0.75 else self.given()
        )

    def double(self) -> str:
        """A surname of two characters, or both parents' surnames."""
        rng = self.rng
        if rng.random() < 0.6:
            return rng.choice(DOUBLE) + self.given()
        return rng.choices(self.surnames, self.weights)[0][0] + self.surname()[0] + self.given()

    def any_word(self) -> str:
        """A frequent word, with or without a surname before it: only its place says that it is a name."""
        word = self.rng.choice(self.frequent)
        return self.surname() + word if self.rng.random() < 0.4 or len(word) < 2 else word

    def word(self) -> str:
        """An ordinary word, a place or a herb that begins with a surname."""
        r = self.rng.random()
        return self.rng.choice(self.pleasant if r < 0.6 else self.word_names if r < 0.9 else PROVINCES)

    def of_people(self) -> str:
        """Other peoples of China, with and without a dot, and neighbours who write their names in characters."""
        rng, r = self.rng, self.rng.random()
        dot = rng.choice(("·", "·", "", "•", "．"))
        if r < 0.36:
            first, last = rng.choice(TURKIC), rng.choice(TURKIC)
            first += rng.choice(TURKIC_END) if rng.random() < 0.35 else ""
            return first + dot + last if rng.random() < 0.6 else first
        if r < 0.54:
            return rng.choice(TIBETAN) + (rng.choice((dot, "", "")) + rng.choice(TIBETAN) if rng.random() < 0.75 else "")
        if r < 0.68:
            return rng.choice(MONGOL) if rng.random() < 0.7 else rng.choice(MONGOL) + rng.choice((dot, "")) + rng.choice(MONGOL)
        if r < 0.76:
            return rng.choice(YI) + rng.choice(("", dot)) + rng.choice(YI) + rng.choice(("", rng.choice("莫果呷木扎惹")))
        if r < 0.86:
            return rng.choice(JAPANESE) + rng.choice(JAPANESE_GIVEN)
        if r < 0.94:
            return rng.choice(KOREAN) + rng.choice(KOREAN_GIVEN)
        return rng.choice(VIET) + rng.choice(VIET_MIDDLE) + rng.choice(GIVEN)

    def by_sound(self) -> str:
        rng = self.rng
        if rng.random() < 0.4:
            return rng.choice(FOREIGN)
        return "".join(rng.choice(SOUND) for _ in range(rng.randint(1, 3))) + rng.choice(FOREIGN_END)

    def foreign(self) -> str:
        rng = self.rng
        parts = [self.by_sound() for _ in range(rng.choice((1, 2, 2, 2, 3)))]
        if rng.random() < 0.08:
            parts[0] += f"-{rng.choice(FOREIGN)}"
        return rng.choice(("·", "·", "·", "•", "")).join(parts)

    def nickname(self) -> str:
        """As people are called at home or in the village: 老王头, 刘瘸子, 阿强, 二狗."""
        rng, r = self.rng, self.rng.random()
        if r < 0.3:
            return self.surname() + rng.choice(AFTER_SURNAME)
        if r < 0.5:
            return rng.choice(BEFORE_SURNAME) + self.surname()[0] + rng.choice(("", "", "头", "子", "哥", "姐", "儿", "家"))
        if r < 0.65:
            return "阿" + rng.choice(GIVEN) + rng.choice(("", "", "", "仔", "妹", "姐", "哥", "婆", "嫂"))
        if r < 0.75:
            return rng.choice("小大") + rng.choice(GIVEN) + rng.choice(("", rng.choice(GIVEN)))
        return rng.choice(PET)
