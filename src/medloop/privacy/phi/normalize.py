"""The text as the finders read it: plain digits, spaces and dashes, without invisible characters."""

import unicodedata

from medloop.privacy.phi.guards import lazy_pattern

MASK = "\ue000"  # replaces each character of a placeholder: not a letter, not a digit, not a space

# Where the digits of other scripts begin (Unicode Nd in the basic plane, and the mathematical ones).
_ZEROS = [
    int(code, 16)
    for code in """0660 06F0 07C0 0966 09E6 0A66 0AE6 0B66 0BE6 0C66 0CE6 0D66 0DE6 0E50 0ED0 0F20 1040 1090 17E0 1810 1946 19D0
    1A80
    1A90 1B50 1BB0 1C40 1C50 A620 A8D0 A900 A9D0 A9F0 AA50 ABF0 FF10 1D7CE 1D7D8 1D7E2 1D7EC 1D7F6""".split()
]
_FOLD = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_FOLD.update({zero + n: ord("0") + n for zero in _ZEROS for n in range(10)})
_FOLD.update(dict.fromkeys((0x3000, 0xA0, 0x2007, 0x202F, 0x2002, 0x2003, 0x2009), ord(" ")))
_FOLD.update(dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2212), ord("-")))
# Digits in circles and brackets, raised and lowered ones, and the letters of mathematics: plain to a reader.
for _one in (0x2460, 0x2474, 0x2488, 0x24F5, 0x2776, 0x2780, 0x278A):
    _FOLD.update({_one + n: ord("1") + n for n in range(9)})
_FOLD.update(dict.fromkeys((0x24EA, 0x24FF, 0x1F10B, 0x1F10C), ord("0")))
_FOLD.update({0x2080 + n: ord("0") + n for n in range(10)} | {0x2074 + n: ord("4") + n for n in range(6)})
_FOLD.update({0x2070: ord("0"), 0xB9: ord("1"), 0xB2: ord("2"), 0xB3: ord("3")})
for _code in (*range(0x1D400, 0x1D7CE), *range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A)):
    if len(_plain := unicodedata.normalize("NFKC", chr(_code))) == 1 and _plain.isascii():
        _FOLD[_code] = ord(_plain)
# Characters of Taiwan, Hong Kong and Macau that stand in names and notes, and how the lists and the network know them.
_TRADITIONAL = (
    "陳張劉楊黃趙吳孫馬羅鄭謝韓馮蕭蔣葉蘇盧賈鐘鍾譚鄒陸龍萬錢湯賀龔嚴許鄧呂閻範韋魯關顧齊畢聶歐陽諸偉麗國華蘭鳳靜強軍傑濤豔艷紅剛輝東曉雲貴寶榮愛樂銘鵬飛慶嬌瓊瑩穎瑋緯鈞錦鋒鎮鐵長門開陣頭顏風駿魚鳴鴻鶴麥齡儀億優兒劍勳勝勵務動區協單卻參員問啟喬嘯"
    "園圓團場堅報壽夢奧婦學寧實審寫專將對導層岡島嵐嶺師帥帶幹幾應懷戰擇據擊數斷時晉書會條來極楓業構樓標樹橋機檢權歡歲歷歸殺氣漢潔澤濱灣為無煒煙熱燁燈爾狀獎獨現環畫異當發盡監盤確禮種稱穩窮筆節築簡糧紀約純紹終組經維綱網綺緒線練縣總績繼續義習聖聞聯"
    "聰聲職肅腦膽臉臨興舉舊莊莖萊葦蓋蓮蕓薩藍藝藥蘆號處虛術衛裏補裝複見規視親覺觀計記設診詠詩話該認語誠說調論諾謙講證譯議護讀變讓財責貞負貢貨買費賢質購車軒較載輕輪辦農連進運過達遠適選還邊鄉鄰醫釋針鈴銀鋼錄鏡間閱闊陰際隊隨險雙雜離難電靈順須頌預領"
    "題額願類飯養館驗體髮鬱點黨媽爺嬸們這個後復痺瘡癒癥腫脹腸膚臟壓傷產嬰腎乾鹼鈣鉀鈉鎂檯臺廣廳廠慮屆雞鴨貓豬鄺鄔鄲閔闕龐婁竇賴贊談勞鮑酈厲滿駱欒甯饒祿貝茲儲紐鬍衝賓瀟瀾灝煥燦燻瑤璽璣瓏綵繡纓羣翹蔭薔蘊詢諭譽軾輯轉鈺鑾鋭銳鐸闖陞霽韜韻頤驊驕驍鯤鵑"
    "鷹憶攜斕暉曄楨樑檸汎淚淵溫滄瑪禎穀竜紗絲綠綾緣縈縱繪織"
)
_SIMPLIFIED = (
    "陈张刘杨黄赵吴孙马罗郑谢韩冯萧蒋叶苏卢贾钟钟谭邹陆龙万钱汤贺龚严许邓吕阎范韦鲁关顾齐毕聂欧阳诸伟丽国华兰凤静强军杰涛艳艳红刚辉东晓云贵宝荣爱乐铭鹏飞庆娇琼莹颖玮纬钧锦锋镇铁长门开阵头颜风骏鱼鸣鸿鹤麦龄仪亿优儿剑勋胜励务动区协单却参员问启乔啸"
    "园圆团场坚报寿梦奥妇学宁实审写专将对导层冈岛岚岭师帅带干几应怀战择据击数断时晋书会条来极枫业构楼标树桥机检权欢岁历归杀气汉洁泽滨湾为无炜烟热烨灯尔状奖独现环画异当发尽监盘确礼种称稳穷笔节筑简粮纪约纯绍终组经维纲网绮绪线练县总绩继续义习圣闻联"
    "聪声职肃脑胆脸临兴举旧庄茎莱苇盖莲芸萨蓝艺药芦号处虚术卫里补装复见规视亲觉观计记设诊咏诗话该认语诚说调论诺谦讲证译议护读变让财责贞负贡货买费贤质购车轩较载轻轮办农连进运过达远适选还边乡邻医释针铃银钢录镜间阅阔阴际队随险双杂离难电灵顺须颂预领"
    "题额愿类饭养馆验体发郁点党妈爷婶们这个后复痹疮愈症肿胀肠肤脏压伤产婴肾干碱钙钾钠镁台台广厅厂虑届鸡鸭猫猪邝邬郸闵阙庞娄窦赖赞谈劳鲍郦厉满骆栾宁饶禄贝兹储纽胡冲宾潇澜灏焕灿熏瑶玺玑珑彩绣缨群翘荫蔷蕴询谕誉轼辑转钰銮锐锐铎闯升霁韬韵颐骅骄骁鲲鹃"
    "鹰忆携斓晖晔桢梁柠泛泪渊温沧玛祯谷龙纱丝绿绫缘萦纵绘织"
)
_FOLD.update(zip(map(ord, _TRADITIONAL), map(ord, _SIMPLIFIED), strict=True))
_INVISIBLE = lazy_pattern(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\u20e3\ufe00-\ufe0f\ufeff]"
)


def fold(text: str) -> str:
    """Full-width and foreign digits, unusual spaces and dashes, traditional characters in their plain form; offsets stay."""
    return text if text.isascii() else text.translate(_FOLD)


def remove_invisible(text: str) -> tuple[str, list[int] | None]:
    """The text without characters that take no room, and the original offset of each character and of the end.

    None instead of offsets where nothing was removed. A number with such characters between its digits looks whole to a reader.
    """
    if text.isascii() or not _INVISIBLE.search(text):
        return text, None
    offsets = [offset for offset, char in enumerate(text) if not _INVISIBLE.match(char)]
    return "".join(text[offset] for offset in offsets), [*offsets, len(text)]
