"""Output documents as plain data (headings, tables, matrices, heat maps), made from results.

May import: plain records of the packages below; no torch, no rendering. Imported by: render, commands, the front ends.
In: results of any package. Out: a Document.
"""

from peasy.views.document import (
    Arithmetic as Arithmetic,
)
from peasy.views.document import (
    CacheFigure as CacheFigure,
)
from peasy.views.document import (
    Cell as Cell,
)
from peasy.views.document import (
    Curves as Curves,
)
from peasy.views.document import (
    Diagram as Diagram,
)
from peasy.views.document import (
    Document as Document,
)
from peasy.views.document import (
    DocumentPart as DocumentPart,
)
from peasy.views.document import (
    Formula as Formula,
)
from peasy.views.document import (
    Heading as Heading,
)
from peasy.views.document import (
    Links as Links,
)
from peasy.views.document import (
    Maps as Maps,
)
from peasy.views.document import (
    Matrix as Matrix,
)
from peasy.views.document import (
    Node as Node,
)
from peasy.views.document import (
    Paragraph as Paragraph,
)
from peasy.views.document import (
    Plane as Plane,
)
from peasy.views.document import (
    Rows as Rows,
)
from peasy.views.document import (
    Table as Table,
)
from peasy.views.document import (
    Vectors as Vectors,
)
