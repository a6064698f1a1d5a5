"""Texts that tokenizers get wrong, made the same way every time. Imported by make_golden.py and compare_live.py."""
import itertools
import random

NASTY_CHARS = (
    " \t\n\r\x0b\x0c\x00\x01\x1b\x1c\x1f\x7f\x85\xa0\xad\u1680\u180e\u2000\u2003\u2009\u200a\u200b\u200c\u200d\u200e\u200f"
    "\u2028\u2029\u202a\u202e\u202f\u205f\u2060\u2066\u3000\ufeff\ufffc\ufffd\ufffe\uffff\ue000\U000f0000\U0010ffff"
    "aAzZsStTdDmMlLrRvVeE0129'\"`.,!?-_()[]{}<>|/\\@#$%^&*+=~:;"
    "\u017f\u212a\u00df\u1e9e\u0130\u0131\u01c5\ufb00\ufb06\u2019\u02bc"
    "\u00e9\u0301\u0300\u0327\u0323\u0345\u034f\u05d0\u05b0\u0627\u064b\u0653\u0915\u093c\u094d\u0e01\u0e33\u0f71\u0f72\u0f74"
    "\u1100\u1161\u11a8\uac00\uac01\ud7a3\u3042\u3099\u30ab\u4e2d\u6587\uf900\u2126\u212b\u0340\u0344\u2adc"
    "\u00b2\u00bd\u0661\u0967\u2167\u2460\u3007\u4e00\U0001d7d8\U00010140\U0001f1fa\U0001f1f8\U0001f600\U0001f468\U0001f3fd\ufe0f\ufe0e"
    "\U0001d160\U00020000\U000e0001\U000e0067\u1734\U0001e922\U00011366\u0378\u2ffe\u10ff\u1c80\ua7cb\U00010d4a\U0001e5f0\U0001ccf0"
    "\u2581\u0120\u010a\u0143\u0144")

WORDS = ("the a Once upon time girl named Lily don't DON'T Don't we'll WE'LL I'm I'M it's IT'S they've THEY'VE you're YOU'RE he'd "
         "HE'D 'tis 's 'S 't 'll 've 're 'm 'd ''s '\u017f x'\u017fy rock'n'roll o'clock 1234567890 3.14159 1,000,000 0x1F600 2^31 -1 \u0661\u0662\u0663\u0664 "
         "na\u00efve nai\u0308ve caf\u00e9 cafe\u0301 \u00c5ngstr\u00f6m \u212bngstr\u00f6m stra\u00dfe STRASSE \u0130stanbul \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 "
         "\u041f\u0440\u0438\u0432\u0435\u0442 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 "
         "\u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab\u1100\u116e\u11a8 \U0001d573\U0001d58a\U0001d591\U0001d591\U0001d594 "
         "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f44d\U0001f3fd \U0001f1fa\U0001f1f8 \u2764\ufe0f def return() self.x[i]+=1; "
         "https://example.org/a?b=c&d=%20 foo@bar.com C:\\dir\\file.txt {\"k\":[1,2]} <html> </div> ... --- ___ *** \u2014 \u2026 \u201cq\u201d").split(" ")

MARKERS = ["</s>", "<s>", "<pad>", "<unk>", "<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|padding|>", "<mask>", "<0x0A>",
           "<0xE2>", "[INST]", "</s", "<|endoftext", "<</s>>", "</s></s>", "<extra>", "<left>", "<right>", "<both>", "<word>",
           "<plain>", "caf\u00e9tok", "NBtok", "  ", "    ", "<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|eot_id|>", "<|user|>", "<|end|>",
           "<|assistant|>", "[/INST]", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<table>", "<think>",
           "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cUser\uff5c>"]

CODE = ("for (int i = 0; i < n; ++i) {\n    sum += a[i] * b[i];\n}\n", "def f(x):\n\treturn x**2  # \u00b2\n\n\n", "SELECT * FROM t WHERE a='b' AND c>=10;",
        "HTTPServer getElementById XMLHttpRequest camelCase snake_case SCREAMING_CASE", "\\frac{1}{2}\\alpha_{i,j}^{2}", "#include <vector>\r\n",
        "$ ls -la /usr/bin | grep -v '^d'", "<div class=\"a\">\n  &nbsp;</div>", "1st 2nd 3rd 4x4 v1.2.3-rc4 2026-11-27T01:02:03Z +49(0)123")

SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\t", "\t\t", " \n", "\n ", " \t \n", "\xa0", "\u3000", "\u2028", "\x85", "",
          "", " ", " ", " "]


def every_code_point():
    """All planes: every assigned and unassigned code point once, in lines that mix neighbours with ASCII."""
    line = []
    for c in range(0x110000):
        if 0xD800 <= c <= 0xDFFF or (c >= 0x32000 and c % 0x1000 > 0x20 and not 0xE0000 <= c < 0xE0200):
            continue
        line.append(chr(c))
        if len(line) == 64:
            yield "".join(line)
            yield " ".join(line[:32])
            yield "a" + "b1".join(line[32:]) + " "
            line = []
    yield "".join(line)


def nasty_strings(rng, count):
    for _ in range(count):
        yield "".join(rng.choice(NASTY_CHARS) for _ in range(rng.randint(1, 24)))


def sentences(rng, count):
    for _ in range(count):
        yield "".join(rng.choice(WORDS) + rng.choice(SPACES) for _ in range(rng.randint(1, 16)))


def marked(rng, count):
    for _ in range(count):
        parts = [rng.choice(MARKERS) if rng.random() < 0.4 else rng.choice(WORDS) if rng.random() < 0.6 else rng.choice(NASTY_CHARS)
                 for _ in range(rng.randint(1, 12))]
        yield "".join(p + (rng.choice(SPACES) if rng.random() < 0.6 else "") for p in parts)


def code(rng, count):
    for _ in range(count):
        yield "".join(rng.choice(CODE) + rng.choice(SPACES) + rng.choice(WORDS) for _ in range(rng.randint(1, 3)))


def random_unicode(rng, count):
    planes = [(0, 0x80), (0x80, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000), (0x20000, 0x110000)]
    for _ in range(count):
        low, high = rng.choice(planes)
        yield "".join(chr(rng.randrange(low, high)) if rng.random() < 0.8 else rng.choice(NASTY_CHARS) for _ in range(rng.randint(1, 20)))


def long_runs(rng):
    for text in NASTY_CHARS:
        for length in (2, 3, 17, 400):
            yield text * length
    for a, b in itertools.islice(itertools.permutations(SPACES[:16], 2), 200):
        yield (a + b) * 9 + "x" + a + b
    for n in range(1, 40):
        yield "1" * n + " " * n + "a" * n + "'" * n
    for _ in range(40):
        yield "".join(rng.choice("ab \n") for _ in range(3000))


def mark_runs(rng, count):
    """Combining marks in every order, for normalisation form C."""
    marks = [chr(c) for c in itertools.chain(range(0x300, 0x370), range(0x591, 0x5C0), range(0x64B, 0x660), range(0x1DC0, 0x1E00),
                                             range(0x3099, 0x309B), range(0x1D165, 0x1D16A), range(0x11A0, 0x11C0))]
    bases = "aeioucnsAEIOU\u0915\u0928\u30ab\u30cf\uac00\u1100\u1161\u05d0\u0627\u1d15e\u00e9\u1ea4\u0344\ufb1d\u1100\u2260\u0338 "
    for _ in range(count):
        yield "".join(rng.choice(bases) + "".join(rng.choice(marks) for _ in range(rng.randint(0, 5))) for _ in range(rng.randint(1, 6)))


def all_cases(prose):
    """About 40,000 texts. `prose`: a long text to take windows of."""
    rng = random.Random(20240607)
    yield from ["", " ", "\n", "a", "'", "\x00", "\u2581", "\u2581a", " \u2581a", "</s>", "</s> a"]
    yield from every_code_point()
    yield from nasty_strings(rng, 8000)
    yield from sentences(rng, 6000)
    yield from marked(rng, 8000)
    yield from code(rng, 1500)
    yield from random_unicode(rng, 4000)
    yield from long_runs(rng)
    yield from mark_runs(rng, 4000)
    for _ in range(400):
        at = rng.randrange(max(1, len(prose) - 600))
        yield prose[at:at + rng.randint(1, 600)]
    yield prose
