"""Word lists of the register feature space: English, lower case, our own selection."""

from __future__ import annotations

_LISTS = {
    "first_singular": "i me my mine myself i'm i've i'd i'll im ive",
    "first_plural": "we us our ours ourselves we're we've we'd we'll",
    "second_person": """you your yours yourself yourselves you're you've you'd you'll u ur ya
        y'all thee thou thy""",
    "third_person": """he him his himself she her hers herself they them their theirs themselves
        he's she's they're they've he'd she'd they'd he'll she'll they'll""",
    "demonstratives": "this these those such",
    "modals_possible": "can could may might cannot can't couldn't mightn't",
    "modals_necessary": "must shall should ought mustn't shouldn't shan't",
    "modals_future": "will would won't wouldn't",
    "hedges": """perhaps maybe possibly probably apparently likely unlikely approximately suggest
        suggests suggested suggesting indicate indicates indicated indicating appear appears
        appeared seem seems seemed tend tends generally relatively partly largely somewhat
        presumably potentially roughly""",
    "boosters": """very really so absolutely totally completely extremely truly definitely
        literally incredibly super entirely always ever just pretty""",
    "private_verbs": """think thought know knew feel felt believe believed guess hope hoped wonder
        wondered remember remembered forget forgot want wanted love loved hate hated mean dream
        dreamed need needed""",
    "reporting_verbs": """said say says told tell tells announced reported reports according added
        confirmed claimed warned declared stated spokesman spokeswoman spokesperson officials
        official sources witnesses statement interview reporters conference asked denied urged
        insisted explained described""",
    "irregular_past": """was were had did went came saw took gave found made got became began
        brought built bought caught chose drew drove ate fell fought flew grew held kept knew led
        left lost met paid ran rose sold sent shot sang sat spoke spent stood stole swam taught
        told thought threw understood woke wore won wrote broke heard laid lay slept""",
    "auxiliaries": """is are was were be been being am have has had having do does did can could
        may might must shall should will would""",
    "prepositions": """about above across after against along among around at before behind below
        beneath beside besides between beyond by despite down during except for from in inside
        into like near of off on onto out outside over past per since through throughout to toward
        towards under underneath until unto up upon via with within without""",
    "articles": "the a an",
    "universals": "any all each every either neither no none other",
    "coordinators": "and or but nor",
    "conditionals": "if unless provided whether except where whereas otherwise until upon",
    "subordinators": "because although though while when after before since that which who whom",
    "connectives": """however therefore thus moreover furthermore hence consequently nevertheless
        nonetheless accordingly additionally finally instead meanwhile whereas respectively
        overall conversely""",
    "negations": "not no never none nothing nobody nor neither without n't",
    "interjections": """oh hey hi hello yeah yep yup nah nope ok okay okey lol lmao omg haha hahaha
        hehe wow ugh hmm hm uh um oops yay yikes btw tbh idk imo pls plz thx thanks bye dude bro
        guys gonna wanna gotta kinda sorta dunno lemme gimme cuz cause tho ngl rn aw aww whoa
        cool sure sorry anyway anyways right well""",
    "everyday": """stuff thing things guy lot lots bit get got getting go going gone come see look
        tomorrow tonight today later weekend yesterday mum mom dad coffee pizza lunch dinner phone
        bus school work home bed sleep crazy weird funny nice awesome good bad actually already
        still again something anything someone somewhere""",
    "legal_terms": """party parties agreement clause section subsection article paragraph contract
        provision provisions obligations obligation liability liable damages indemnify warranty
        warranties termination terminate breach law court tenant landlord licensee licensor
        licensed lessee lessor buyer seller claimant plaintiff defendant respondent petitioner
        jurisdiction tribunal statute act regulation rights notice consent written execution
        governing applicable deemed constitute constitutes entitled comply compliance
        confidential assign assignment waiver null void force remedy remedies disclosure employer
        employee appeal judgment pursuant prejudice foregoing aforesaid hereto""",
    "research_terms": """results result method methods data analysis analyses study studies sample
        samples participants patients experiment experiments experimental hypothesis model models
        measured observed observations estimated estimate significant significantly correlation
        correlated effect effects increase increased decrease decreased compared control controls
        trial trials randomized cohort variance regression dataset datasets baseline baselines
        parameters parameter simulation simulations theoretical framework approach propose
        proposed demonstrate demonstrates show shows investigate investigated examine examined
        evaluate evaluated assessed association mechanism mechanisms temperature concentration
        concentrations cells cell gene genes protein species function evidence conclude findings
        mean median confidence interval accuracy performance using via novel rates rate levels""",
    "news_terms": """police government minister president mayor council city officials election
        vote voters parliament senate congress company shares percent million billion people
        residents killed injured arrested fire crash storm flood strike union workers budget tax
        prices market markets year week month night morning country state states leader leaders
        party opposition court investigation authorities emergency hospital agency prime deputy
        campaign coalition deal talks lawmakers""",
    "selling_terms": """new free best perfect amazing exclusive premium ultimate guaranteed
        guarantee save savings offer offers deal deals discount limited sale shop buy order today
        now easy easily effortless effortlessly instantly love enjoy discover experience unlock
        transform boost upgrade introducing style stylish luxury luxurious comfort comfortable
        quality designed delivered delivery shipping customers favourite favorite value price
        risk-free money-back subscribe join trusted proven powerful smart smarter fresh delicious
        beautiful gorgeous stunning unforgettable award-winning handcrafted whether
        ready imagine""",
    "imagery": """moon sun star stars sky night dawn dusk morning evening shadow shadows light dark
        darkness river rivers sea ocean tide tides wave waves wind winds rain snow frost fog mist
        storm stone stones bone bones ash ashes fire flame flames ember smoke dust earth soil root
        roots leaf leaves tree trees branch branches flower flowers rose petals grass field fields
        meadow hill hills mountain mountains valley bird birds wing wings feather crow swallow
        heart hearts breath mouth hands hand eyes skin blood tongue song songs silence whisper
        whispers echo echoes dream dreams sleep gold golden silver blue grey gray green red white
        black pale soft cold warm winter summer autumn spring october november salt honey glass
        window door road bells bell lantern thread water moth garden grave shore""",
    "feelings": """love loved lonely lonesome tender tenderness ache aching grief sorrow joy fear
        afraid longing tears weep wept cry cried happy happiness sad sadness hope despair gentle
        lost mourning gladness delight anger wonder kiss kissed""",
    "calendar": """monday tuesday wednesday thursday friday saturday sunday january february march
        april june july august september october november december""",
    "imperatives": """get try buy order shop discover enjoy join save let make take come give meet
        say choose find feel start stop treat call click visit see subscribe experience unlock
        transform upgrade imagine book download add pick grab bring sign explore taste forget
        don't dare claim turn wake leave slip share send tell look remember listen sing""",
}

LEXICON: dict[str, frozenset[str]] = {name: frozenset(s.split()) for name, s in _LISTS.items()}
"""Words by list."""


def _inverted() -> dict[str, tuple[str, ...]]:
    lists: dict[str, list[str]] = {}
    for name, members in LEXICON.items():
        for word in sorted(members):
            lists.setdefault(word, []).append(name)
    return {word: tuple(names) for word, names in lists.items()}


LISTS_OF: dict[str, tuple[str, ...]] = _inverted()
"""The lists that a word is in."""
