# The words of the Mathematics Dataset's questions: all that 1,200 training
# questions of each module have, without the random letters of bags and of
# other bases.
_WORDS = """
AM Add Are Calculate Collect Convert Determine Differentiate Divide Do
Does Evaluate Expand Express Factor Find Four Give How In Is Let List
Multiply PM Product Put Rearrange Round Simplify Solve Sort Subtract Sum
Suppose Three Total Two What Which Work after and are as ascending
assuming at away base be before between big bigger biggest billions by
centimeter centimeters centuries century closest comes common composite
cube day days decade decades decimal decreasing denominator derivative
descending difference different digit distance divide divided divisor dp
dps eight eighteen eighth eighths eighty eleven equal even factor
factors fifteen fifteenth fifteenths fifth fifths fifty first five for
form four fourth fourty from give given gram grams greater greatest
halves have highest hour hours hundred hundreds in increasing integer is
kilogram kilograms kilometer kilometers least less letters litre litres
lowest many meter meters microgram micrograms micrometer micrometers
microsecond microseconds millennia millennium milligram milligrams
millilitres millimeter millimeters million millions millisecond
milliseconds minus minute minutes months most multiple nanograms
nanometers nanoseconds nearest next nine nineteen ninth ninths non
nonequal not number of one or order out picked picking place places plus
positive power prime prob product quarter quarters remainder replacement
respect root rounded same second seconds sequence seven seventeen
seventh sevenths seventy six sixteen sixteenth sixteenths sixth sixths
sixty smaller smallest so sqrt square such take ten tens tenth tenths
term terms th than that the there third thirds thirteen thirty thousand
thousands three times to together tonne tonnes twentieth twenty two
unequal units value values week weeks what when with without wrt year
years zero
"""
QUESTION_WORDS = tuple(_WORDS.split())
