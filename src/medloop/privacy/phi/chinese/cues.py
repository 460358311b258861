"""Words beside a Chinese name: titles, roles, what persons do, and words of records."""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
from medloop.privacy.phi.guards import lazy_pattern

TITLE = lazy_pattern(
    "医生|医师|大夫|主任|护士|先生|女士|小姐|教授|院长|阿姨|大爷|大妈|老师|药师|同志|奶奶|爷爷|叔叔|师傅|同学|警官|律师|经理|主治|小朋友|大娘|阿婆"
)
# What a surname alone may be followed by.
BEHIND_SURNAME = lazy_pattern(
    f"{TITLE.pattern}|叔|姐|哥|总|姨|婶|嫂|伯|老板|工|处长|科长|队长|会计|秘书|太太|某|氏|老|公|主管|技师|博士|院士|大姐|大哥"
    "|大娘|大叔|姥|医|护|副"
)
# Who somebody is, right before the name.
ROLE = lazy_pattern(
    "(?:姓名|[弟妹哥姐姑舅]{2}|姨妈|伯母|婶婶|丈夫|妻子|爱人|老公|老婆|儿子|女儿|同事|朋友|同学|护工|家属|邻居|保姆|男友|女友|助手|术者|一助|二助|陪护|访者|询者"
    r"|表[哥弟姐妹]|堂[哥弟姐妹]|姐夫|妹夫|舅妈|[大二三四小][姨叔舅姑]|岳[父母]|太太|闺女|老伴|侄女|甥女|村医|护理员|护师|教授|大夫|我爸|我妈|器械|麻醉|巡回|患儿|孕妇|产妇|转告|转入|新收|\d床|通知|感谢|随访|申请人|投诉人|投诉者|联系人|监护人|代理人|侄子|外甥|孙子|孙女|儿媳|女婿|母亲|父亲|妈妈|爸爸|奶奶|爷爷|外婆|外公|老师|(?<![象种症病物法俗又都学称就为会乱惊喊])叫|名叫|叫做|死者|伤者|房东|司机|工友|战友|室友|队友|[：:] ?)$"
)
# What persons do or are, right behind the name.
SAYS = lazy_pattern("觉得|认为|说|表示|讲|反映|提到|问|告诉|要求|希望|担心|建议|反馈|来电|打来|诉|称")
PERSON_BEHIND = lazy_pattern(
    rf"{SAYS.pattern}|{TITLE.pattern}|[，,（( ]?(?:男|女)[，,。 )）]|[，,（( ]?(?:\d{{1,3}}|[一二两三四五六七八九十]{{1,3}})岁"
)
TITLED_BEHIND = lazy_pattern(
    rf"{TITLE.pattern}|[，,（( ]?(?:男|女)[，,。 )）]|[，,（( ]?(?:\d{{1,3}}|[一二两三四五六七八九十]{{1,3}})岁"
)
# A week, a company, a speaker's own: the surname belongs to the character before it.
WORD_ACROSS = lazy_pattern(
    "[醉药]师|[上下本每这那一二两三四五六七八九十几多双单半]周|[我贵公该]司|[分小一]时|[不未]曾|[同每]房|[医]师|[小厅]车|[过全日历工]程|[不]安|[可]能"
)
WEEKDAY_WISH_OR_TOWN = lazy_pattern(
    "周[一二三四五六日末]|祝[健您你早好平愉顺生一]|吉林|南京|宣武|温州|康复|安徽|江苏|江西|青海|云南|贵州|石家庄|常州|金华"
    "|陆军|连云港|安阳|小梁|张冠李戴|先向"
    "|[春夏秋冬白]天|[妹姐哥弟爸妈爷奶姑舅叔伯婶]{2}|阿姨|宝宝|[一二三四五六七八九十]{2}"
)
# Children, animals, numbers and towns that the network takes for a name; not before a title or a sex.
NOBODY = lazy_pattern(
    r"(?:儿子|女儿|妹妹|弟弟|姐姐|哥哥|[大二三堂表][伯妹姑姨舅]|小妹|宝贝|玉米|秋冬|照蓝|富贵[包病]|若想|[才满][一二三四五六七八九十]"
    r"|小儿|小狗|小猫|小妹妹|小弟弟|孙[子女]|[大二]宝|[一二三四五六七八九十]{2}|花生|娃娃|谈谈|浅浅|支[一支]?招|陆军|公元|中国|欧洲|非洲|美洲|哈尔滨|徐州|海珠|长春|郑州|秦皇岛|张家口|邢台|许昌|商丘|周口|黄[石冈山]|荆州|常[德州]|岳阳|邵阳|武[汉昌]|江门|汕头|潮州|梅州|柳州"
    r"|成都|乐山|安顺|毕节|贵阳|兰州|白[银城云]|牡丹江|佳木斯|包头|乌海|马鞍山|池州|宣城|福州|莆田|泉州|宁[德波]|龙岩|杭州|湖州|台州|盐城|扬州|镇江|泰州|宿[州迁]|苏州|东莞|花都)"
    rf"(?!{TITLE.pattern}|[，,（( ]?[男女]|某)"
)
# Words of records and letters about a person; in such a text a name is likelier than in an article or an exam question.
RECORD = lazy_pattern(
    r"姓名|家属|[我他她]叫|叫做|名叫|本人|签名|签字|签署|\d床|床号|收件|收货|快递|地址|邮箱|户名|登记号|护照|来电|查房|值班|随访"
    r"|交班|转账|退款|参保|身份证|手机|电话|住院号|门诊号|病历号|病案号|挂号|的号|我(?:爱人|丈夫|妻子|外甥|同事)|护士|助手|执笔|伤者"
    r"|见证|\d{7}|[患病][者人][^的可应有在，,。]{2,3}[，,]|尊敬的|投诉|转告|陪同|先生|女士|@"
)


PERSON_WORD = lazy_pattern("叫|请|患儿|产妇|孕妇|病人|患者|闺女|儿子|女儿|侄|甥|大叔|大爷|大妈|阿姨|主刀|一助|·")
