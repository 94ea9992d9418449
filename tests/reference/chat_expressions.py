"""Small templates, each for one rule of the language; rendered with VARIABLES."""

VARIABLES = {
    "name": "river", "empty": "", "text": "The quick brown fox", "spaced": "  a \t b\n ", "lines": "one\ntwo\r\nthree\n",
    "unicode": "Größe 日本語 🙂", "quotes": "it's \"so\"", "number": 42, "negative": -7, "zero": 0, "real": 2.5, "whole": 3.0,
    "yes": True, "no": False, "nothing": None, "list": [3, 1, 2], "words": ["b", "a", "C", "a"], "nested": [[1, 2], [3]],
    "record": {"a": 1, "b": [2, {"c": None}], "items": "own", "x y": 2.0},
    "people": [{"name": "Ann", "age": 30, "tags": {"k": "v"}}, {"name": "bob", "age": 25}, {"name": "Cy", "age": 30}],
    "cases": " ".join(char for char in map(chr, range(0x20000)) if len({char, char.upper(), char.lower(), char.title()}) > 1),
    "greek": "\u039f\u0394\u039f\u03a3 \u03a3\u03a3\u0301. \u03a3 '\u03a3' a'\u03a3 a\u03a3'\u0301b a:\u03a3: 1\u03a3",
    "digits": ["\u0663\u0664", "x\u00b2", "\u00b2\u00b9", "\u2460", "\u00bd", "\U00010a41", "\u4e00", "1\u0967", "\U0001d7ce"],
    "html": "<a href='x'>&amp;</a>", "big": 9007199254740993, "tiny": 1e-7, "large": 1.5e300, "tenth": 0.1,
}

EXPRESSIONS = r"""
{{ name }}
{{ missing }}|{{ nothing }}|{{ yes }}|{{ no }}|{{ number }}|{{ real }}|{{ whole }}
{{ list }}|{{ record }}|{{ words }}|{{ nested }}|{{ () }}|{{ (1,) }}|{{ (1, 'a') }}|{{ {} }}|{{ {'a': 1, 2: none} }}
{{ unicode }}|{{ [unicode] }}|{{ [quotes] }}|{{ ["'"] }}|{{ ['"'] }}|{{ ["\n\t\\\x00\x7f\xa0\u200b\U0001F600"] }}
{{ big }}|{{ tiny }}|{{ large }}|{{ tenth }}|{{ 1e16 }}|{{ 123456789012345680.0 }}|{{ 1e15 }}|{{ 0.0001 }}|{{ 0.00001 }}|{{ -0.0 }}|{{ 100.0 }}|{{ 1.0e-10 }}
{{ 1 + 2 * 3 - 4 / 2 }}|{{ 7 // 2 }}|{{ -7 // 2 }}|{{ 7 % 3 }}|{{ -7 % 3 }}|{{ 7 % -3 }}|{{ 7.5 // 2 }}|{{ -7.5 % 2 }}|{{ 2 ** 10 }}|{{ 2 ** -1 }}|{{ 2 ** 0.5 }}
{{ -number }}|{{ +number }}|{{ --3 }}|{{ -2 ** 2 }}|{{ not yes }}|{{ not not yes }}|{{ not not not yes }}|{{ 1 - -1 }}
{{ 1 / 2 }}|{{ 4 / 2 }}|{{ true + 1 }}|{{ true * 3 }}|{{ 3 * 'ab' }}|{{ 'ab' * 2 }}|{{ 'ab' * -1 }}|{{ true * 'x' }}
{{ 'a' ~ 'b' + 'c' ~ 1 ~ none ~ true ~ 2.0 ~ [1] }}|{{ 1 ~ 2 ~ 3 }}|{{ '1' + 2 ~ 3 }}|{{ missing ~ 'x' }}
{{ list + [9] }}|{{ (1, 2) + (3,) }}|{{ [] + [] }}
{{ 1 == 1.0 }}|{{ true == 1 }}|{{ '1' == 1 }}|{{ none == none }}|{{ missing == missing2 }}|{{ missing == none }}|{{ [1, 2] == [1, 2] }}|{{ (1, 2) == [1, 2] }}|{{ {'a': 1} == {'a': 1.0} }}|{{ 'a' != 'b' }}
{{ 1 < 2 < 3 }}|{{ 1 < 3 < 2 }}|{{ 3 > 2 >= 2 }}|{{ 'a' < 'b' }}|{{ 'B' < 'a' }}|{{ 'é' > 'z' }}|{{ 1 <= 1.0 }}|{{ 2 != 3 != 2 }}
{{ 'quick' in text }}|{{ '' in text }}|{{ 'x' not in text }}|{{ 3 in list }}|{{ 9 in list }}|{{ 'a' in record }}|{{ 1 in record }}|{{ 'a' in missing }}|{{ none in [none] }}|{{ not 3 in list }}
{{ yes and name }}|{{ no and name }}|{{ no or name }}|{{ '' or [] or 0 or none }}|{{ yes or missing.field }}|{{ 1 and 2 or 3 }}
{{ 'a' if yes else 'b' }}|{{ 'a' if no else 'b' }}|{{ 'a' if no }}|{{ 'a' if no else 'b' if no else 'c' }}|{{ ('x' if yes) ~ 'y' }}
{{ list[0] }}|{{ list[-1] }}|{{ list[5] }}|{{ text[0] }}|{{ unicode[-1] }}|{{ unicode[2] }}|{{ record['a'] }}|{{ record.a }}|{{ record['zz'] }}|{{ record.zz }}|{{ record['x y'] }}|{{ nested[0][1] }}|{{ nested.0.1 }}
{{ list[:2] }}|{{ list[1:] }}|{{ list[::-1] }}|{{ list[::2] }}|{{ list[-2:] }}|{{ list[5:] }}|{{ list[:-1] }}|{{ list[2:0:-1] }}|{{ list[:] }}|{{ list[10:-10:-1] }}|{{ list[none:2] }}
{{ text[4:9] }}|{{ text[::-1] }}|{{ unicode[5:8] }}|{{ unicode[::-2] }}|{{ text[-3:] }}|{{ text[:100] }}|{{ ''[1:] }}|{{ (1, 2, 3)[1:] }}
{% for k, v in record.items() %}{{ k }}={{ v }};{% endfor %}|{% for k in record %}{{ k }},{% endfor %}|{% for k in record.keys() %}{{ k }},{% endfor %}|{% for v in record.values() %}{{ v }},{% endfor %}
{{ record.get('a') }}|{{ record.get('q') }}|{{ record.get('q', 5) }}|{{ record['items'] }}
{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }}{{ loop.cycle('a', 'b') }};{% endfor %}
{% for i in nested %}{% for j in i %}{{ loop.depth0 }}{{ j }}{% endfor %}{{ loop.index }}{% endfor %}
{% for i in [] %}x{% else %}none{% endfor %}|{% for i in missing %}x{% else %}none{% endfor %}|{% for c in 'aé' %}{{ c }}.{% endfor %}
{% for i in list if i > 1 %}{{ i }}{{ loop.length }}{% else %}e{% endfor %}|{% for i in list if i > 10 %}{{ i }}{% else %}e{% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}|{% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}
{% set x = 1 %}{% for i in list %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}
{% set ns = namespace(n=0, s='') %}{% for i in list %}{% set ns.n = ns.n + i %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }}{{ ns.s }}{{ ns.zz }}
{% if yes %}{% set y = 5 %}{% endif %}{{ y }}|{% if no %}{% set z = 5 %}{% endif %}{{ z }}|{{ z is defined }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}|{% set a = 1, 2 %}{{ a }}|{% set (c, d) = [3, 4] %}{{ c }}{{ d }}
{% set body %}[{{ name }}]{% endset %}{{ body }}|{% set body | upper | trim %} {{ name }} {% endset %}{{ body }}
{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(1, c='y') }}|{{ m(b=5, a=4) }}|{{ m() }}|{{ m(1)|length }}
{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}
{% set g = 1 %}{% macro h() %}{{ g }}{% endmacro %}{% set g = 2 %}{{ h() }}
{% for i in [1, 2] %}{% macro k() %}{{ i }}{% endmacro %}{{ k() }}{% endfor %}
{% if number > 40 and number < 50 %}in{% elif number %}b{% else %}c{% endif %}|{% if 0 %}a{% elif '' %}b{% else %}c{% endif %}
{% raw %}{{ not }} {% this %}{% endraw %}|{{ '{{' }}
a{# comment {{ x }} #}b
{{ text.upper() }}|{{ text.lower() }}|{{ text.title() }}|{{ 'hELLO wORLD'.capitalize() }}|{{ 'ß'.upper() }}|{{ 'ÄÖ'.lower() }}
[{{ spaced.strip() }}][{{ spaced.lstrip() }}][{{ spaced.rstrip() }}][{{ 'xxaxx'.strip('x') }}][{{ 'abcba'.lstrip('ba') }}][{{ 'éaé'.strip('é') }}][{{ ' a'.strip(none) }}]
{{ text.split() }}|{{ text.split(' ') }}|{{ 'a,b,,c'.split(',') }}|{{ 'a,b,c'.split(',', 1) }}|{{ spaced.split() }}|{{ ' a b c '.split(none, 1) }}|{{ 'a,b,c'.rsplit(',', 1) }}|{{ ''.split() }}|{{ ''.split(',') }}|{{ 'a,b'.split(sep=',', maxsplit=0) }}
{{ lines.splitlines() }}|{{ lines.splitlines(true) }}|{{ ''.splitlines() }}|{{ 'a\n\nb'.splitlines() }}
{{ text.startswith('The') }}|{{ text.endswith('x') }}|{{ text.startswith(('a', 'T')) }}|{{ text.endswith('') }}
{{ text.replace('o', '0') }}|{{ text.replace('o', '0', 1) }}|{{ 'abc'.replace('', '-') }}|{{ 'é'.replace('', '.') }}|{{ 'aaa'.replace('aa', 'b') }}
{{ text.find('q') }}|{{ unicode.find('日') }}|{{ text.find('zz') }}|{{ 'abab'.rfind('ab') }}|{{ 'abab'.count('ab') }}|{{ 'aaa'.count('aa') }}|{{ ','.join(words) }}|{{ 'x'.join('abc') }}
{{ 'prefix-a'.removeprefix('prefix-') }}|{{ 'a.txt'.removesuffix('.txt') }}|{{ 'a'.removesuffix('b') }}|{{ '12'.isdigit() }}|{{ '1a'.isdigit() }}|{{ ''.isdigit() }}
{{ list|length }}|{{ unicode|length }}|{{ record|count }}|{{ missing|length }}|{{ ''|length }}
{{ words|join }}|{{ words|join(', ') }}|{{ [1, none, 'a', missing]|join('-') }}|{{ people|join(', ', attribute='name') }}|{{ 'abc'|join('.') }}
{{ missing|default('d') }}|{{ nothing|default('d') }}|{{ nothing|default('d', true) }}|{{ ''|d('e', boolean=true) }}|{{ missing|default }}|{{ 0|default(5, true) }}
{{ spaced|trim }}|{{ 'xxaxx'|trim('x') }}|{{ 5|trim }}|{{ text|upper }}|{{ text|lower }}|{{ text|capitalize }}|{{ text|replace('quick', 'slow') }}|{{ 'aaa'|replace('a', 'b', 2) }}|{{ 123|replace(2, 'x') }}
{{ list|first }}|{{ list|last }}|{{ 'abc'|first }}|{{ []|first }}|{{ list|sort }}|{{ words|sort }}|{{ words|sort(reverse=true) }}|{{ words|sort(case_sensitive=true) }}|{{ people|sort(attribute='age')|map(attribute='name')|list }}
{{ list|reverse|list }}|{{ 'abc'|reverse }}|{{ words|unique|list }}|{{ list|max }}|{{ list|min }}|{{ list|sum }}|{{ people|sum(attribute='age') }}|{{ [1, 1, 2]|unique|list }}|{{ 'abc'|list }}
{{ people|map(attribute='name')|list }}|{{ words|map('upper')|list }}|{{ people|selectattr('tags', 'defined')|map(attribute='tags.k')|list }}|{{ nested|map(attribute='0')|list }}|{{ people|map(attribute='zz', default='-')|list }}|{{ words|map('replace', 'a', 'b')|join }}
{{ list|select('greaterthan', 1)|list }}|{{ list|reject('odd')|list }}|{{ people|selectattr('age', 'equalto', 30)|map(attribute='name')|list }}|{{ people|rejectattr('tags')|list|length }}|{{ people|selectattr('tags', 'defined')|list|length }}|{{ [0, 1, '']|select|list }}|{{ people|selectattr('age', '>', 26)|list|length }}
{% if list|select('greaterthan', 100) %}true{% else %}false{% endif %}|{% set s = list|select('odd') %}{{ s|list }}{{ s|list }}
{{ record|tojson }}|{{ record|tojson(indent=2) }}|{{ []|tojson(indent=2) }}|{{ {}|tojson }}|{{ nested|tojson(indent=1) }}
{{ unicode|tojson }}|{{ unicode|tojson(ensure_ascii=true) }}|{{ html|tojson }}|{{ quotes|tojson }}|{{ "\n\t\r\b\f\x01\x7f\\"|tojson }}|{{ (1, 2)|tojson }}|{{ none|tojson }}|{{ 1e300|tojson }}|{{ {1: 2, none: 3, true: 4}|tojson }}
{{ {'b': 1, 'a': [1, 2]}|tojson(sort_keys=true, separators=(',', ':')) }}|{{ {'b': 1}|tojson(indent='--') }}|{{ [1, [2]]|tojson(indent=0) }}
{{ '42'|int }}|{{ '4.7'|int }}|{{ 'x'|int }}|{{ 'x'|int(7) }}|{{ 3.9|int }}|{{ -3.9|int }}|{{ ' 5 '|int }}|{{ none|int }}|{{ '1.5'|float }}|{{ 'x'|float }}|{{ 3|float }}|{{ true|int }}
{{ -5|abs }}|{{ (-5)|abs }}|{{ (-2.5)|abs }}|{{ 5|string ~ 'x' }}|{{ none|string }}|{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent(width=1, blank=true) }}|{{ 'a\nb'|indent('>>') }}
{{ record|items|list }}|{{ missing|items|list }}|{{ record|dictsort }}|{{ {'b': 1, 'A': 2}|dictsort }}|{{ {'b': 1, 'A': 2}|dictsort(by='value', reverse=true) }}
{{ name is defined }}|{{ missing is defined }}|{{ missing is undefined }}|{{ missing is not defined }}|{{ nothing is none }}|{{ nothing is not none }}|{{ name is string }}|{{ number is number }}|{{ real is float }}|{{ number is integer }}|{{ yes is integer }}|{{ yes is boolean }}|{{ yes is true }}|{{ 1 is true }}|{{ no is false }}
{{ record is mapping }}|{{ list is mapping }}|{{ list is iterable }}|{{ name is iterable }}|{{ number is iterable }}|{{ list is sequence }}|{{ record is sequence }}|{{ missing is iterable }}|{{ range is callable }}|{{ name is callable }}
{{ 4 is even }}|{{ 4 is odd }}|{{ 9 is divisibleby 3 }}|{{ 9 is divisibleby(2) }}|{{ 3 is in list }}|{{ 3 is eq 3 }}|{{ 3 is ne 4 }}|{{ 3 is lt 4 }}|{{ 3 is ge(3) }}|{{ 'a' is equalto 'a' }}|{{ none is sameas none }}|{{ true is sameas true }}|{{ 1 is sameas true }}
{{ 'abc' is lower }}|{{ 'aBc' is lower }}|{{ 'ABC1' is upper }}|{{ '' is upper }}|{{ not name is defined }}|{{ name is not string or yes }}|{{ name is defined and number is string }}|{{ (number is number) == true }}
{{ range(3)|list }}|{{ range(1, 4)|list }}|{{ range(5, 0, -2)|list }}|{{ range(0)|list }}|{{ dict(a=1, b='x') }}|{{ dict2 is defined }}
{{ namespace(a=1).a }}|{{ [1, 2, 3,] }}|{{ {'a': 1,} }}|{{ 'con' 'cat' }}|{{ "a\"b" }}|{{ 'a\'b' }}|{{ '\q' }}|{{ 'a\
b' }}
{{ (((1))) }}|{{ [1, 2][0] }}|{{ {'a': {'b': 3}}.a.b }}|{{ 'abc'[1] }}|{{ 'a b'.split()[1] }}|{{ ('a' ~ 'b')|upper }}|{{ 'a' ~ 'b'|upper }}|{{ -1|abs }}|{{ 2 * 3|string }}
{{ 1 if 2 > 1 else 0 }}
{{ cases.upper() }}
{{ cases.lower() }}|{{ cases|lower == cases.lower() }}
{{ cases.title() }}
{% for c in cases.split() %}{{ c.capitalize() }}{{ c is lower }}{{ c is upper }}{% endfor %}
{{ greek.lower() }}|{{ greek.title() }}|{{ greek|capitalize }}|{{ 'ßx ŉa ﬁn'.title() }}|{{ 'ǆX'|capitalize }}|{{ "they're o'neil's".title() }}
{% for d in digits %}{{ d.isdigit() }};{% endfor %}
{{ range(3) }}|{{ range(1,9,2) }}|{{ [range(2)] }}|{{ {'a': range(0)} }}|{{ range(10)[2:5] }}|{{ range(10)[::-1] }}|{{ range(2, 20, 3)[1:4:2] }}|{{ range(3)|string }}|{{ range(3) ~ 'x' }}
{{ range(3) == range(3) }}|{{ range(3) == [0,1,2] }}|{{ range(0) == range(2,2) }}|{{ range(5)[-1] }}|{{ range(3)[9] }}|{{ range(3) is sequence }}|{{ range(3) is iterable }}|{{ range(3) is mapping }}|{{ 2 in range(3) }}|{{ 'x' if range(0) else 'y' }}|{{ range(3)|join(',') }}|{{ range(3)|sum }}|{{ range(3)|last }}
{{ range(3) + [1] }}
{{ range(3)|tojson }}
{{ self is defined }}|{{ self }}|{{ self.x }}|{{ self is mapping }}|{{ self is callable }}|{{ self is iterable }}|{{ self is string }}|{{ not self }}|{{ 'y' if self else 'n' }}
{{ self.x.y }}
{{ [i for i in list] }}
{{ missing.field }}
{{ missing['a'] }}
{{ missing() }}
{{ missing + 1 }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ none + 1 }}
{{ [1] + (2,) }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ 1 in 'a' }}
{{ 'a' in none }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.0 / 0 }}
{% for i in 5 %}{% endfor %}
{% for i in none %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{{ 5|length }}
{{ list|select('greaterthan', 1)|length }}
{{ name.nothing }}|{{ name['nothing'] }}|{{ number.nothing }}
{{ raise_exception('stop here') }}
{{ name.nothing() }}
{{ list.nothing }}
{{ list.append(1) }}
{{ name._private }}
{{ name['__class__'] }}
{{ list[1:2:0] }}
{{ list['a':] }}
{% set list.x = 1 %}
{% set ns = namespace() %}{% set ns._x = 1 %}
{{ {[1]: 2} }}
{{ range(200000) }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}
{{ ''.split('') }}
{{ 'a'.join([1]) }}
{{ record|tojson|length }}
{{ range|tojson }}
{% if %}{% endif %}
{% if yes %}
{{ }}
{{ 1 2 }}
{{ (1 }}
{{ 1) }}
{{ 'open }}
{% endif %}
{% for %}{% endfor %}
{% for x in %}{% endfor %}
{% set = 1 %}
{% unknown %}
{{ x | nofilter }}
{{ x is notest }}
{{ 1 is divisibleby }}
{# open
{{ 5 is 5 }}
{% break %}
{% macro m %}{% endmacro %}
{% raw %}
{{ a.1b }}
{{ 'a' if }}
""".strip("\n")

# White space is what matters here, so these are whole templates.
WHITESPACE = [
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n",
    "a\n  {%- if true %}\n  b\n  {%- endif %}\nc\n",
    "a  {% if true -%}  \n  b  {%- endif -%}  \n c",
    "a\n  {%+ if true %}\n  b\n  {%+ endif +%}\nc",
    "  {{ 1 }}  \n  {{- 2 -}}  \n  {{ 3 }}\n",
    "\n\n{{ 1 }}\n\n",
    "{{ 1 }}\n",
    "a {# c #} b\n  {# c #}\nd {#- c -#} e\n{#+ c +#}\nf",
    "{% if true %}\n\n\nx{% endif %}\n\n\ny",
    "x\r\ny\rz\n{% if true %}\r\nq{% endif %}\r\n",
    "{% raw %}\n  {{ x }} \n  {% endraw %}\nz",
    "a {%- raw -%}  b  {%- endraw -%}  c",
    "  {% raw %} b {% endraw %}",
    "{% for i in [1, 2] %}\n  {{ i }}\n{% endfor %}\n",
    "  {% for i in [1, 2] -%}\n  {{ i }}\n  {%- endfor %}  \n",
    "{% set x = 1 %}   \n  {{ x }}",
    "{% set x = 1 %}\t{% set y = 2 %}  {{ x + y }}",
    "\t{% if true %}\n\t\tx\n\t{% endif %}\n",
    "{{ {'a': {'b': 1}} }}{{ '}}' }}{% if '%}' %}x{% endif %}",
    "{{-1}}|{{- 1 -}}|{{ -1 }}",
    "a\u00a0{%- if true %}b{% endif %}\u2003{{- 'c' }}",
    "{",
    "{ { } }",
    "%} }} #}",
    "",
    "\n",
    "{%if true%}x{%endif%}",
    "{{'a'}}{{\n'b'\n}}",
    "{% if true %}a{% endif %}  \n  b",
    "line\n    {{- 'x' }}\n    {%- if false %}\n    y\n    {%- endif %}\nend",
]
