// Reference row codecs: each format's own.
#include "kernels/ops.h"

namespace millrace {

void add_row_codec_ref(KernelTable& table) {
  for (const Format* format : formats().members()) set_codec(table, {format, format->encode, format->decode});
}

}  // namespace millrace
