"""What form of answer a question asks for: the same words again, another language, code, a choice.

    asks_for_same_words("Proofread: I has a cold")          -> True
    asks_for_language("How do you say this in Polish?")     -> True
    is_echo("My knee hurts", "My knee hurts")               -> True

An answer in the question's own words, or in another language, is a fault only where nothing of this was asked for. As in
`certainty.py` the cues are loose: what they miss is a verdict, not a penalty.
"""

from collections import Counter
from typing import Final

from medloop import lexicon
from medloop.lexicon.health_topic import is_about_health
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import copied_share, ngram_set, words

WHOLE_COPY: Final = 0.8  # share of the question that is in an answer which echoes it
NEW_WORDS: Final = 1  # words of its own that an answer may have and still be an echo
READ_LETTERS: Final = 0.5  # share of an answer's letters that must be read, for it to be a copy
COPIED: Final = 0.5  # share of an answer in the question's words, from which on it has no advice of its own
NGRAMS, LEAST_DIFFERENT = 9, 0.8  # of so many 4-grams that share is different in prose
TELLING: Final = 6  # words, or Chinese characters, that tell a language
_SAME_WORDS: Final = lazy_pattern(
    r"\b(?:repeat\w*|say (?:it |this |that )?(?:again|after me)|correct\w*|proofread\w*|fix (?:the|this|my)|grammar|spelling"
    r"|rewrit\w*|re-?word\w*|rephras\w*|paraphras\w*|reformul\w*|corrig\w*|edit|revis\w*|improve (?:the|this|my)|polish"
    r"|translat\w*|summar\w+|shorten|simplif\w*|choose|choice|pick|select|options?|which (?:one )?of|true or false|yes or no"
    r"|is it true|right or wrong|agree"
    r"|label|classif\w*|categori[sz]\w*|entail\w*|hypothesis|premise|sentiment|extract|quote|highlight|identify|find the"
    r"|complete the|fill in|sort|reorder|rearrange|capitali[sz]e|title|headline|sentence|passage|paragraph|text|task"
    r"|given (?:a|an|the)|output|input|answer with|say (?:only|just|the word)|copy)\b"
    r"|重复|复述|跟我(?:念|说)|纠正|改正|修改|校对|润色|改写|语法|错别字|翻译|译成|总结|概括|缩写|简化|选择|选出|选项|挑选|哪一?[个项种]|以下|下列"
    r"|对还是错|是否正确|正确吗|对吗|对不对|是不是|判断|标签|分类|提取|摘录|找出|填空|补全|排序|标题|句子|段落|文本|任务|输出|输入|给定|同意吗"
    r"|还是|是否"
)
# The key of an exam: it takes up the stem and its options by design.
_EXAM_KEY: Final = lazy_pattern(
    r"本题(?:考[查点核]|选|为|主要)|(?:答案|故选|正确答案)[为是选:：]{0,2} ?[a-e]|[(（][a-e]{1,5}(?:[对错]|项?(?:正确|错误))"
    r"|掌握[“\"].{2,20}[”\"]知识点"
    r"|\b(?:answer|option)(?: is|:) ?\(?(?:[b-e]\b|a(?=[.,:;)]|$| (?:because|since|as)\b))"  # not "the answer is a clear no"
)
_REFRAIN: Final = lazy_pattern(
    r"\b(?:songs?|lyrics|poems?|chants?|rhymes?|rap|refrain|chorus|mantra|lullaby|drill)\b|歌|诗|口诀|顺口溜|绕口令"
)
_AGAIN: Final = lazy_pattern(  # the same words, or sentences after a pattern, are what is asked for
    r"\b(?:repeat (?:it|this|that|the|after)|(?:say|write|repeat|print|type|sing)\b[^.?!]{0,80}\btimes|examples?|premise"
    r"|hypothesis|entail\w*|template)\b|\[[qa]\]|(?:重复|复述)(?:一遍|以下|下面|这|[\d一二两三四五六七八九十]+[遍次])|[说写念读抄][^，,。]{0,12}遍"
    r"|例子|示例|例如[:：]|模板|造句|前提[:：]|假设[:：]"
)
_GREETING: Final = lazy_pattern(
    r"^\W*(?:hi|hello|hey|good (?:morning|evening|afternoon|night)|thanks?(?: you)?|bye"
    r"|你好|您好|早上?好|晚上好|下午好|嗨|谢谢|再见|晚安)\W*$"
)
_ASSENT: Final = lazy_pattern(
    r"^\W*(?:yes|yeah|yep|no|nope|not|true|false|right|wrong|correct|incorrect|exactly|indeed|agreed|i agree|of course"
    r"|sure|ok(?:ay)?|是|不|对|没|正确|错|同意|当然|好的?|可以|能|会|有|嗯)(?![a-z])"
)
_LANGUAGE: Final = lazy_pattern(
    r"\b(?:translat\w*|traduc\w*|tradu[iz]\w*|übersetz\w*|how (?:do|would|can) (?:you|i|we) say|language|bilingual|mother tongue"
    r"|english|chinese|mandarin|cantonese|spanish|french|german|italian|portuguese|dutch|polish|russian|ukrainian|turkish|arabic"
    r"|hebrew|hindi|urdu|bengali|thai|lao|vietnamese|indonesian|japanese|korean|latin|greek|swedish|finnish|bulgarian|czech"
    r"|inglés|español|chino|anglais|français|espagnol|englisch|deutsch|inglese|inglês)\b"
    r"|翻译|译成|双语|外语|[英日韩法德俄中汉葡泰藏蒙]文|[英日韩法德俄汉葡泰蒙]语|西班牙语|老挝语|越南语|阿拉伯语|保加利亚语|意大利语|用语言|英汉|汉英"
    r"|перев[ео]\w*|по-\w+ски|на \w+ском|как (?:это )?(?:будет|сказать)"
)
_STEM_END: Final = lazy_pattern(r"(?:是|为|属|指|应|宜|有|于|称|超过|包括|形成|审定的|选用|采用|考虑|表现)[:：]?$")
_ABOUT_CODE: Final = lazy_pattern(
    r"\b(?:python|javascript|java|c\+\+|html|css|sql|regex|json|xml|latex|bash|source code|(?:the|some|a piece of|write) code"
    r"|coding|programming|algorithm|excel)\b|代码|编程|程序|函数|脚本|算法|公式|正则"
)
_CODE: Final = lazy_pattern(
    r"```|(?m:^[ \t]*(?:def|class|import|from|return|print|for|while|public|const|var|let|#include|@\w+|<\w+)\b.*[(:;{>=)]$)"
    r"|(?m:[{};]$)|</?(?:div|p|html|body|script|span|br)\b|\w\.\w+\(\w*\)|\b\w+ = \w+[\[(]"
)
_PROSE: Final = lazy_pattern(r"[\u3400-\u9fff]|(?<![\w/])[^\W\d_\u3400-\u9fff]{2,}(?![\w/%])")  # words, no numbers with a unit
_LINK: Final = lazy_pattern(r"(?:https?://|www\.)\S+|\b[\w-]+\.(?:com|org|net|io|cn|gov|edu)\b\S*")
_QUOTED: Final = lazy_pattern(
    r"\"[^\"\n]{2,}\"|“[^”\n]{2,}”|«[^»\n]{2,}»|「[^」\n]{2,}」|『[^』\n]{2,}』|‘[^’\n]{2,}’(?!\w)|`[^`\n]+`|(?<!\w)'[^'\n]{8,}'(?!\w)"
)
_TRANSLATES: Final = lazy_pattern(r"翻译|译[成为作]|\btranslat\w+")
_REQUESTS: Final = lazy_pattern(
    r"[?？¿]|\b(?:how|what|why|when|where|who|which|can|could|should|do|does|please|help|tell|give|write|explain|list|suggest|recommend"
    r"|make|need|i|i'm|i've|my|we|our)\b|[吗呢吧我俺]|怎|什么|如何|哪|请|帮|推荐|介绍|告诉|给|求|孩子|宝宝"
)
_SCRIPTS: Final = tuple(
    lazy_pattern(script)
    for script in (
        r"[\u3400-\u9fff]{2,}", r"[\u3040-\u30ff]{2,}", r"[\uac00-\ud7af]{2,}", r"[\u0370-\u03ff]{3,}", r"[\u0400-\u052f]{3,}",
        r"[\u0590-\u05ff]{3,}", r"[\u0600-\u06ff]{3,}", r"[\u0900-\u0dff]{3,}", r"[\u0e00-\u0e7f]{3,}", r"[\u0e80-\u0eff]{3,}",
        r"(?:[a-z\u00c0-\u024f]{2,}[ ,.'’-]+){3,}[a-z\u00c0-\u024f]{2,}",
    )
)  # fmt: skip

_CHARACTERS: Final = tuple(
    lazy_pattern(script)
    for script in (
        r"[\u3400-\u9fff]",
        r"[\uac00-\ud7af]",
        r"[\u0400-\u052f]",
        r"[\u0600-\u06ff]",
        r"[\u0900-\u0dff]",
        r"[\u0e00-\u0eff]",
    )
)


def asks_for_same_words(question: str) -> bool:
    """Whether words of the question are what a right answer has: to be repeated, corrected, translated, chosen or judged."""
    return _SAME_WORDS.search(lexicon.folded(question)) is not None


def is_echo(question: str, visible: str) -> bool:
    """Whether an answer certainly gives back the question: nearly all of it, and that was not asked for.

    A few words of the question are an answer in itself ("twice a day"), so is a yes in its words, and a part of a long text
    may be its summary. One word more may be the answer to it: "the order is" - "the order is CAB".
    """
    if _GREETING.search(lexicon.folded(question)):
        return False  # it is answered in kind
    if asks_for_same_words(question) or asks_for_code(question) or _ASSENT.search(lexicon.folded(visible)):
        return False
    if sum(map(len, words(visible))) < READ_LETTERS * sum(map(str.isalpha, visible)):
        return False  # most of it is in letters that are not read
    new = Counter(words(visible)) - Counter(words(question))
    return copied_share(question, visible) >= WHOLE_COPY and new.total() <= NEW_WORDS and not _is_stem(question)


def is_own_prose(question: str, visible: str) -> bool:
    """Whether an answer says something of its own: neither the question again nor the same words again and again."""
    size = len(words(visible))
    repeats = size - 3 >= NGRAMS and len(ngram_set(visible, 4)) < LEAST_DIFFERENT * (size - 3)
    return not repeats and copied_share(visible, question) < COPIED


def is_exam_key(visible: str) -> bool:
    """Whether a text explains which options of an exam are right."""
    return _EXAM_KEY.search(lexicon.folded(visible)) is not None


def _is_stem(question: str) -> bool:
    """Whether a Chinese text is the beginning of a sentence that an answer has to end."""
    return _STEM_END.search(question.strip()) is not None


def asks_for_refrain(question: str) -> bool:
    """Whether what is asked for says the same again: a song, a drill, sentences after a pattern."""
    folded = lexicon.folded(question)
    return _REFRAIN.search(folded) is not None or _AGAIN.search(folded) is not None


def asks_for_language(question: str) -> bool:
    """Whether a language is named, or something is to be said in another one."""
    return _LANGUAGE.search(lexicon.folded(question)) is not None


def holds_code(text: str) -> bool:
    return _CODE.search(text.lower()) is not None


def asks_for_code(question: str) -> bool:
    return _ABOUT_CODE.search(lexicon.folded(question)) is not None or holds_code(question)


def is_plainly_foreign(question: str, visible: str) -> bool:
    """Whether it is plain that an answer should be in the question's language: both are prose, each in one language.

    Code, links, quoted words and data in another language are no fault, and a few words tell no language.
    """
    if asks_for_language(question) or asks_for_code(question) or holds_code(visible):
        return False
    bare = not _REQUESTS.search(lexicon.folded(question)) and not is_about_health(question)
    if bare or _TRANSLATES.search(lexicon.folded(visible)):
        return False  # a sentence without a request or a complaint may be one to be translated
    own, asked = (_QUOTED.sub(" ", _LINK.sub(" ", text)) for text in (visible, question))
    if min(len(_PROSE.findall(text)) for text in (own, asked)) < TELLING or _share_script(own, asked):
        return False
    return _scripts(question) <= 1 and _scripts(own) <= 1


def _share_script(own: str, asked: str) -> bool:
    """Whether both have the characters of one script that is not Latin: titles and names beside them tell nothing."""
    return any(min(len(script.findall(text)) for text in (own, asked)) >= TELLING for script in _CHARACTERS)


def _scripts(text: str) -> int:
    folded = text.lower()
    return sum(script.search(folded) is not None for script in _SCRIPTS)
