"""What is equal between targets of one build, kept once for all of them: series, lines, forms and layouts of pages."""

from collections.abc import Mapping, Sequence
from itertools import compress
from operator import getitem
from types import MappingProxyType
from weakref import WeakValueDictionary

from watchdog.history.layout import Layout
from watchdog.model import Series

# Name, labels, and whether zeros are left out.
_Identity = tuple[str, frozenset[tuple[str, str]], bool]


class Lines(dict[bytes, Series | None]):
    """What the lines of a page mean by the text before their values; None: it is not wanted. Never changed."""

    __slots__ = ("__weakref__",)


class Form:
    """The lines of a page that says nothing new: each by the text before its value, in the order of the page.

    A page of this form is read without a look at what its lines mean.
    """

    __slots__ = ("__weakref__", "_heads", "_values", "_wanted", "series")

    def __init__(self, heads: tuple[bytes, ...], meanings: Sequence[Series | None]) -> None:
        self.series = tuple(one for one in meanings if one is not None)
        """Those of the wanted lines."""
        self._heads = heads
        self._wanted = bytes(one is not None for one in meanings)
        places: dict[int, slice] = {}
        self._values = tuple(
            places.setdefault(len(head), slice(len(head), None)) for head in compress(heads, self._wanted)
        )

    def values(self, lines: Sequence[bytes]) -> list[bytes] | None:
        """The text of each wanted line's value; None for a page of another form."""
        if len(lines) != len(self._heads) or not all(map(bytes.startswith, lines, self._heads)):
            return None
        return list(map(getitem, compress(lines, self._wanted), self._values))  # type: ignore[arg-type]


class Shapes:
    """Series, lines, forms and layouts by what they are, as long as some target uses them.

    For the threads of many targets: what two of them make at the same moment is kept twice, which does no harm.
    """

    def __init__(self) -> None:
        self._series: WeakValueDictionary[_Identity, Series] = WeakValueDictionary()
        self._layouts: WeakValueDictionary[tuple[Series, ...], Layout] = WeakValueDictionary()
        self._lines: WeakValueDictionary[frozenset[bytes], Lines] = WeakValueDictionary()
        self._forms: WeakValueDictionary[tuple[bytes, ...], Form] = WeakValueDictionary()

    def series(self, name: str, labels: Mapping[str, str], leaves_zeros_out: bool = False) -> Series:
        """The one series of this name with these labels."""
        key = (name, frozenset(labels.items()), leaves_zeros_out)
        found = self._series.get(key)
        if found is None:
            found = Series(name, MappingProxyType(dict(labels)), leaves_zeros_out)
            self._series[key] = found
        return found

    def known_series(self, name: str, labels: Mapping[str, str], leaves_zeros_out: bool) -> Series | None:
        """The same, None where no target shows it."""
        return self._series.get((name, frozenset(labels.items()), leaves_zeros_out))

    def layout(self, series: tuple[Series, ...]) -> Layout:
        """The layout of a page of these series."""
        found = self._layouts.get(series)
        if found is None:
            found = self._layouts[series] = Layout.of(series)
        return found

    def lines(self, known: Mapping[bytes, Series | None]) -> Lines:
        """The one copy of what a page's lines mean."""
        heads = frozenset(known)
        found = self._lines.get(heads)
        if found is None or found != known:
            found = self._lines[heads] = Lines(known)
        return found

    def form(self, heads: tuple[bytes, ...], meanings: Sequence[Series | None]) -> Form:
        """The form of a page of these lines, each with the space before its value, which mean this."""
        found = self._forms.get(heads)
        made = None if found is None else found.series
        if found is None or made != tuple(one for one in meanings if one is not None):
            found = self._forms[heads] = Form(heads, meanings)
        return found
