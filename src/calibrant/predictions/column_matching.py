"""Which of a file's columns are ours: found by our names, by one column per class, or as the caller maps them."""

from __future__ import annotations

import fnmatch
import glob
import re
import shlex
from collections import Counter
from collections.abc import Sequence

from calibrant._validation import closest, did_you_mean, listing, shorten
from calibrant.predictions.columns import ACTUAL, PREDICTED, SINGLE, ColumnMap, Columns, OpenOptions
from calibrant.predictions.customary import NUMBERED, column_options, customary, one_column_kind, propose
from calibrant.predictions.labels import (
    Naming,
    name_array,
    name_listed_columns,
    name_matched_columns,
    name_own_columns,
    rename_columns,
    sort_columns,
)
from calibrant.predictions.schema import DATA, GROUP, check_class_names
from calibrant.predictions.values import SINGLE_LABEL

MOST_GROUPS = 1000
EXPECTED = "logits or probabilities with labels, or confidence with correct or with predicted and labels"


def match_columns(
    names: Sequence[str], options: OpenOptions, path: str, *, table: bool, data: str | None = None
) -> ColumnMap:
    """Find our columns among the ``names`` of a file; in a ``table`` the data may be one column per class.

    ``data`` is what the file holds, where its name already says so.
    """
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise ValueError(f"{path}: column names must differ, got {shorten(name)!r} {count} times")
    return _Matcher(names, options, path, table).match(data)


class _Matcher:
    """The columns of one file, and what the caller said about them."""

    def __init__(self, names: Sequence[str], options: OpenOptions, path: str, table: bool):
        self.names, self.options, self.path, self.table = names, options, path, table
        self.present = set(names)

    def match(self, data: str | None) -> ColumnMap:
        holds, sources, naming = self._data(data)
        if not isinstance(sources, str) and len(sources) == 1:
            sources, naming = sources[0], Naming()
        requested = self.options.facts.get("class_names")
        if isinstance(sources, str) and holds != "confidence" and requested is not None:
            requested = check_class_names(requested, f"{self.path}: ")
            naming = name_array(None, requested, self.path, positions=False)
        columns = {holds: sources}
        if holds == "confidence":
            columns["correct"] = self._correct()
            columns |= self._classes()
        for name in ("ids", "objectness") if holds == "confidence" else ("labels", "ids", "objectness"):
            column = self._single(name, SINGLE[name])
            if column is not None:
                columns[name] = column
            elif name == "labels" and not self.options.unlabelled:
                several = [column for column in self.names if re.fullmatch(r"labels?[_.].+", column)]
                if len(several) > 1:
                    raise ValueError(f"{self.path}: holds {listing(several, 3)} as labels, but {SINGLE_LABEL}")
                raise self._lacking("no labels", name, ("y", "true", "class", "actual"))
        columns |= self._groups()
        if not isinstance(sources, str):
            data_columns = set(sources)
            twice = next((name for name, column in columns.items() if name != holds and column in data_columns), None)
            if twice is not None:
                column = shorten(str(columns[twice]))
                raise ValueError(f"{self.path}: column {column!r} is taken both for {holds} and for {twice}")
        return ColumnMap(holds, columns, naming, self.options.positive)

    def _classes(self) -> dict[str, Columns]:
        """The predicted and the true classes beside confidences, for tables by class and the list of errors."""
        predicted = self._single(PREDICTED, (PREDICTED,))
        if predicted is None:
            return {}
        actual = self._single("labels", (*SINGLE["labels"], ACTUAL))
        classes: dict[str, Columns] = {PREDICTED: predicted}
        return classes if actual is None else classes | {ACTUAL: actual}

    def _groups(self) -> dict[str, Columns]:
        mapped = self.options.columns
        groups: dict[str, Columns] = {name: name for name in self.names if name.startswith(GROUP) and name != GROUP}
        groups |= {name: column for name, column in mapped.items() if name.startswith(GROUP)}
        groups |= {GROUP + name: name if name in self.present else GROUP + name for name in self.options.groups}
        if len(groups) > MOST_GROUPS:
            expected = f"there may be at most {MOST_GROUPS:,} groups"
            raise ValueError(f"{self.path}: {expected}, got more columns that start with {GROUP}")
        for name, column in groups.items():
            if column not in self.present:
                raise self._absent(str(column) if name in mapped else name.removeprefix(GROUP), "group")
        return groups

    def _correct(self) -> Columns:
        """The column correct, or those whose agreement it is."""
        if "correct" in self.options.columns or PREDICTED not in self.options.columns:
            correct = self._single("correct", SINGLE["correct"])
            if correct is not None:
                return correct
        predicted = self._single(PREDICTED, (PREDICTED,))
        if predicted is None:
            raise self._no_outcome()
        labels = self._single("labels", SINGLE["labels"])
        if labels is None:
            raise self._lacking("predicted, but no labels to compare with", "labels")
        return predicted, labels

    def _no_outcome(self) -> ValueError:
        """The error about confidences of which nobody says whether they were right."""
        missing = "confidence, but nothing that says whether it was right: correct, or predicted beside labels"
        columns = propose(self.names, table=self.table)
        if not {"labels", PREDICTED} <= set(columns):
            return self._lacking(missing, "correct")
        pair = {role: columns[role] for role in (PREDICTED, "labels")}
        how = f"say which is which, probably {column_options(pair)}"
        return ValueError(f"{self.path}: {missing}; it holds {listing(self.names)}: {how}")

    def _single(self, name: str, aliases: Sequence[str]) -> str | None:
        if name in self.options.columns:
            column = str(self.options.columns[name])
            if column not in self.present:
                raise self._absent(column, name)
            return column
        mapped = {str(column) for column in self.options.columns.values()}
        aliases = [alias for alias in aliases if alias in self.present and alias not in mapped]
        if name in ("labels", PREDICTED, "correct"):
            # What is called label may be what was predicted, where another column states the truth.
            aliases = list(dict.fromkeys([*aliases, *(n for n in customary(name, self.names) if n not in mapped)]))
        if len(aliases) > 1:
            raise ValueError(
                f"{self.path}: holds {' and '.join(map(shorten, aliases[:3]))}: choose with "
                f"{column_options({name: aliases[-1]})}"
            )
        return aliases[0] if aliases else None

    def _data(self, data: str | None) -> tuple[str, Columns, Naming]:
        """What the file holds, its column or columns, and what the columns call the classes."""
        chosen = next((name for name in self.options.columns if name in DATA), data)
        if chosen is not None and self.options.columns.get(chosen, chosen) != chosen:
            return chosen, *self._mapped(chosen, self.options.columns[chosen])
        forms = []
        for name in DATA if chosen is None else (chosen,):
            forms += [(name, column) for column in self.names if column.lower() == name]
            if self.table and name != "confidence":
                forms += [(name, f"{name}{mark}*") for mark in "_." if self._per_class(name, mark)]
        if not forms and chosen is None:
            forms = [("probabilities", f"{word}_*") for word in NUMBERED if len(self._per_class(word, "_")) > 1]
        if not forms and chosen is None and (column := self._one_column()):
            return one_column_kind(column), column, Naming()
        if not forms:
            raise self._no_data(chosen)
        if len(forms) > 1:
            (name, first), (_, second) = forms[:2]
            raise ValueError(f"{self.path}: holds {first} and {second}: choose with {column_options({name: first})}")
        name, form = forms[0]
        if not form.endswith("*"):
            return name, form, Naming()
        word, mark = form[:-2], form[-2]
        columns = self._per_class(word, mark)
        others = [column for column in self.names if column.startswith(form[:-1]) and column not in columns]
        if len(columns) == 1 and others:
            raise ValueError(
                f"{self.path}: holds {shorten(columns[0])} and {listing(others, 3)}, expected one column per class: "
                f"say which it is with {column_options({name: columns[0]})}, or list all of them"
            )
        ordered, parts = sort_columns(columns, [column[len(word) + 1 :] for column in columns], self.path)
        return name, *self._with_requested(name, name_own_columns(parts, dotted=mark == "."), ordered)

    def _one_column(self) -> str | None:
        """A column that is called the probability or the logit, of which there is one for two classes."""
        columns = [name for name in self.names if one_column_kind(name)]
        if len(columns) != 1:
            return None
        if customary(PREDICTED, self.names) or PREDICTED in self.options.columns:
            # It may be the probability of what was predicted, or of the positive class.
            (column,) = columns
            options = (
                f"--column {shlex.quote(f'{role}={column}')}" for role in (one_column_kind(column), "confidence")
            )
            what = f"{shorten(column)!r} may be of the positive class or of the predicted one"
            raise ValueError(f"{self.path}: {what}: say which, {' or '.join(options)}")
        return columns[0]

    def _no_data(self, chosen: str | None) -> ValueError:
        """The error about a file without data that are called so, with the options that would probably read it."""
        what = "no logits, probabilities or confidence" if chosen is None else f"no {chosen}"
        used = {str(column) for column in self.options.columns.values()} | set(self.options.groups)
        columns = propose([name for name in self.names if name not in used], table=self.table)
        if self.names and all(re.fullmatch(r"[-+.0-9e]+", name) for name in self.names):
            return ValueError(f"{self.path}: the first line must name the columns, got {listing(self.names, 5)}")
        if self.names and all(re.fullmatch(r"arr_[0-9]+", name) for name in self.names):
            how = "save them by name, np.savez('x.npz', logits=..., labels=...)"
            return ValueError(f"{self.path}: {what}; it holds {listing(self.names)}: {how}")
        if chosen is not None or not columns:
            guess = next((name for name in DATA if closest(name, self.names)), "logits")
            return self._lacking(f"{what}, expected {EXPECTED}", chosen or guess)
        if columns.get("labels") in SINGLE["labels"]:
            del columns["labels"]
        columns = {role: column for role, column in columns.items() if role not in self.options.columns}
        name = next((name for name in columns if name in ("probabilities", "logits")), "")
        hints = ""
        if name == "probabilities":
            hints = ", or logits= if they are logits"
            if isinstance(columns[name], str) and "*" not in columns[name]:
                hints += "; of one column for two classes, --positive NAME says which class it is of"
        holds = f"it holds {listing(self.names)}"
        return ValueError(
            f"{self.path}: {what}; {holds}: say which is which, probably {column_options(columns)}{hints}"
        )

    def _per_class(self, name: str, mark: str) -> list[str]:
        """Columns such as logits_0 (numbers only, so that logits_file is none) or logits.cat."""
        pattern = re.compile(re.escape(name) + (r"_[0-9]{1,9}" if mark == "_" else r"\..+"), re.DOTALL)
        return [column for column in self.names if pattern.fullmatch(column)]

    def _mapped(self, name: str, pattern: Columns) -> tuple[Columns, Naming]:
        """The columns that the caller gives for the data: one, a list, or a pattern."""
        if isinstance(pattern, tuple):
            return self._listed(name, pattern)
        if pattern in self.present:
            return pattern, Naming()
        if self.table and any(column.startswith(f"{pattern}.") for column in self.names):
            pattern = f"{glob.escape(pattern)}.*"  # the parts of an object
        columns = [column for column in self.names if fnmatch.fnmatchcase(column, pattern)]
        if not self.table or not glob.has_magic(pattern) or not columns:
            raise self._absent(pattern, name)
        before = re.split(r"[*?\[]", pattern)[0].rstrip("0123456789")  # what begins or ends a number is part of it
        after = re.split(r"[*?\]]", pattern)[-1].lstrip("0123456789")
        ordered, parts = sort_columns(columns, [c[len(before) : len(c) - len(after)] for c in columns], self.path)
        return self._with_requested(name, name_matched_columns(ordered, parts), ordered)

    def _listed(self, name: str, columns: tuple[str, ...]) -> tuple[Columns, Naming]:
        missing = next((column for column in columns if column not in self.present), None)
        if missing is not None:
            raise self._absent(missing, name)
        twice, count = Counter(columns).most_common(1)[0] if columns else ("", 0)
        if count != 1:
            actual = f"{shorten(twice)!r} {count} times" if columns else "none"
            raise ValueError(f"{self.path}: columns must list different columns for {name}, got {actual}")
        if not self.table:
            raise ValueError(f"{self.path}: columns must give one array for {name}, got {len(columns)} names")
        return self._with_requested(name, name_listed_columns(columns), columns, listed=True)

    def _with_requested(
        self, holds: str, naming: Naming, columns: tuple[str, ...], *, listed: bool = False
    ) -> tuple[tuple[str, ...], Naming]:
        """The columns in the order of the class names that the caller gave, if any."""
        names = self.options.facts.get("class_names")
        if names is None:
            return columns, naming
        names = check_class_names(names, f"{self.path}: ")
        return rename_columns(naming, columns, names, self.path, holds, listed=listed)

    def _absent(self, column: str, role: str) -> ValueError:
        """The error about a name that was given and is not there."""
        guess = did_you_mean(column, self.names) or ";"
        what = f"no column {shorten(column)!r} (given as {role}){guess}"
        return ValueError(f"{self.path}: {what} it holds {listing(self.names)}")

    def _lacking(self, what: str, name: str, aliases: Sequence[str] = ()) -> ValueError:
        """The error about one of our names that is not there, nor given under another."""
        used = {str(column) for column in self.options.columns.values()} | set(DATA)
        free = [column for column in self.names if column not in used]
        guess = next((other for alias in (name, *aliases) if (other := closest(alias, free))), "NAME")
        how = f"say which it is, for example {column_options({name: guess})}"
        if not free:
            how = f"save {name} in the same file"
        return ValueError(f"{self.path}: {what}; it holds {listing(self.names)}: {how}")
