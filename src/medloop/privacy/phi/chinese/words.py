"""What a Chinese character can belong to: surnames, given names, ordinary words and words of medicine."""

# ruff: noqa: E501  lists in long lines are easier to read than in pieces
from functools import lru_cache

from medloop.privacy.phi import lists
from medloop.privacy.phi.guards import lazy_pattern

# Surnames that the network hardly knows, and those that are mostly another word: these count only before a given name.
RARE_SURNAMES = "阚楼逄亓衣郏缑苌琚隗鄂粘邴乜弓展厍覃朴佴钭蓟莘郦郤殳夔毋蒯暨尕桓贲於汲"
WORD_SURNAMES = "区那还员操买库应家松富牧全仰暴束从籍阴能苍双扶堵宰通别充居都国禄沃利蔚越融空养须巢相后红游益公云和经才鱼终仁卡者资信占火雪雨凡果"
# Characters of given names; most stand in no word of medicine.
GIVEN = (
    "伟芳娜秀敏静丽磊洋勇艳杰娟涛霞刚桂玉梅建志辉仁贵福祥武彬顺茂坚博诚敬震振豪邦承绍善庆裕哲浩亮政谦翰朗宏鸣朋斌栋启翔旭鹏泽晨辰家致树德泰盛雄琛钧冠腾楠榕航弘慧巧淑惠珠翠雅芝"
    "萍玲芬燕彩菊凤洁琳莲荣爱莺媛瑞凡佳嘉琼珍贞莉娣璧璐娅琦妍茜珊莎锦黛倩婷姣婉娴瑾颖瑶怡婵雁蓓荷蓉君琴蕊薇菁梦岚苑婕馨韵咏卿聪澜毓悦昭茗羽希欣滢筠竹晓欢枫芸菲妮宝梵恒鸿桦骅剑娇"
    "媚琪晴睿烁雯萱彦宇雨忠宗曼紫逸贤蝶菡轩涵俊梓诺悠然皓煜昊喆峰峻岗铭鑫钰培坤垚森桐槐喜旺昌隆祖耀扬魁勋卫兵帅彤昕晗瑜莹楷尧骏骁熙妙娥嫣桃杏柳虎溪淼洲滨渝沛沁沐汐泓潇灿炜烨煊焕猛"
    "珂珏瑛璇璋祎祺禄秉笑纲缘翊芮芷茵菱蔚蕾虹衍诗谊豫赐远迪钊铎锋闯霁霖韬颂驰麒麟黎凯雍佩佑侠俪墨熠珮旻昱晟晔暄朔杭栩桢楚歆淇淳湘湛澄瀚琨琰瑄璟甫盼砚硕祯禹穆筱筝翎耘臻舜艾芊芙若英"
    "荃荟菀萌蓝蘅靖靓颐骐骞鹃鹤鼎龄姬樱姮舒棠绮恺翌焱宸奕柏松海龙国华文明军平民云红春秋兰香月青山林成金银才根柱栓狗蛋妞囡囝阿招弟盼娃强超良友义天永长新广学世兴胜利"
    "智采珅嬅蕙芹思念语亦安宁清泉澈源沅汶沂洛洵润涓漪潆焓煦玥珈珞珩珺琅琇琢琬瑗璘畅皎盈睦知礼祈禾稷穗端笙简粲绫缇翡聿胤臣艺芃苓苒茉荇荔萍葳蓁蔓蕴虞衡誉谨贝跃轲遥铃铮镜阁阑霄霏韶颜馥鸢鹭圆满"
)
_WEAK_GIVEN = frozenset(
    "智采思念语亦安宁清泉源润知礼端简艺贝镜颜圆满超敏国华文明军平民云红春秋兰香月青山林成金银才根柱阿招弟强超良友义天永长新广学世兴胜利海家爱"
)
LONGEST_WORD = 8  # characters; no ordinary word of the list has more
GIVEN_PAIR = lazy_pattern(f"[{GIVEN}]{{2}}")


def is_given(name: str) -> bool:
    """Whether every character is one of given names, and not all of them are words of their own."""
    return bool(name) and all(char in GIVEN for char in name) and not all(char in _WEAK_GIVEN for char in name)


def surname_length(text: str, start: int) -> int:
    """How many characters of a surname stand here: 0, 1 or 2."""
    single, double = surnames()
    return 2 if text[start : start + 2] in double else int(text[start : start + 1] in single)


@lru_cache(maxsize=1)
def surnames() -> tuple[frozenset[str], frozenset[str]]:
    names = [
        *lists.lines("surnames_zh.txt"),
        *RARE_SURNAMES,
        *"鲜于 第五 闾丘 呼延 澹台 公冶 宗政 濮阳 淳于 太叔 申屠 仲孙 轩辕 钟离 宇文 长孙 相里 厍狄 公羊 谷梁 拓跋 端木 百里 东郭 梁丘 左丘 万俟 闻人 夏侯 赫连 尉迟".split(),
    ]  # the last are too rare to be learned from
    return frozenset(s for s in names if len(s) == 1), frozenset(s for s in names if len(s) == 2)


@lru_cache(maxsize=1)
def blocked_words() -> frozenset[str]:
    return frozenset(word for line in lists.lines("never_zh.txt") for word in line.split())


@lru_cache(maxsize=1)
def pair_groups() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Pairs of characters that stand side by side in very many, in several, and in at least three medical texts."""
    often, seldom, rarely = set[str](), set[str](), set[str]()
    for line in lists.lines("pairs_zh.txt"):
        for group, seconds in zip((often, seldom, rarely), line[1:].split(" "), strict=True):
            group.update(line[0] + second for second in seconds)
    return frozenset(often), frozenset(often | seldom), frozenset(often | seldom | rarely)


def is_pair(text: str, start: int, *, often: bool = False) -> bool:
    """Whether these two characters stand side by side in several medical texts (`often`: in very many), so are a word."""
    return text[start : start + 2] in pair_groups()[not often]


def is_seen(text: str, start: int) -> bool:
    """Whether they stand so in at least three texts: hardly a name where nothing else says so."""
    return text[start : start + 2] in pair_groups()[2]


@lru_cache(maxsize=1)
def ordinary_words() -> frozenset[str]:
    """Ordinary words that hold a surname: 高血压, 白芍, 张力, 方法."""
    return frozenset(lists.lines("words_zh.txt"))


@lru_cache(maxsize=1)
def function_words() -> frozenset[str]:
    """Adverbs, conjunctions and the like: 果然, 倘若."""
    return frozenset(lists.lines("function_zh.txt"))
