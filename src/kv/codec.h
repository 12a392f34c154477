// KvCodec: a format of the KV cache that encodes tiles: the keys, or the values, of one block of tokens in one head. It
// may scale along tokens as well as along channels, which formats of rows (formats/format.h) cannot. One file each in
// codecs/ and one line in codecs/builtin.cc. Const and stateless: one codec serves all streams and threads.
//
// Which tokens a query sees encoded is a rule of its slot alone, never of prefill chunks: those of its own block, and
// of residual() tokens before that block, are raw rows of f16; all older blocks are encoded.
//
//   slots   [ encoded blocks | residual(), raw | own block, raw: up to the query ]
//
// Raw rows are in a tail beside the stream's blocks (KvLayout::tail_tokens). A block is encoded when its last token is
// stored, and depends on nothing but the raw rows of its tokens, so that streams may share it. What depends on one row
// alone is encoded with that row, so that the work of a block is spread over the steps that fill it (by_token()).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/registry.h"
#include "base/result.h"
#include "kernels/kernel_table.h"

namespace millrace {

enum class KvPart : uint8_t { keys, values };

class KvCodec {
 public:
  virtual ~KvCodec() = default;

  virtual std::string text() const = 0;           // NAME:key=value,... with all options: names the bytes of its tiles
  virtual int64_t block_multiple() const = 0;     // tokens of a block are a multiple of this
  virtual int64_t residual() const { return 0; }  // rounded up to whole blocks
  // Errors: unsupported.
  virtual Result<void> check(int64_t /*head_dim*/) const { return {}; }
  // Of a model with this many layers. Errors: user.
  virtual Result<void> check_layers(int64_t /*layers*/) const { return {}; }
  // What stores and loads the tiles of a layer: of the same size.
  virtual const KvCodec& layer(int64_t /*index*/) const { return *this; }

  // A codec may round keys and values in another orthogonal basis: both are rotated before they are raw rows, queries
  // are rotated to meet them, and sums of values are rotated back. In place, one head.
  virtual bool rotates() const { return false; }
  virtual void rotate(float* /*head*/, int64_t /*head_dim*/) const {}
  virtual void rotate_back(float* /*head*/, int64_t /*head_dim*/) const {}

  // Keys are encoded as they were before RoPE.
  virtual bool before_rope() const { return false; }
  // The first tokens of a stream stay raw: `sink_tokens` rows of f16 at byte `sink_at` of its first tiles. At most
  // block_multiple().
  virtual int64_t sink_tokens() const { return 0; }
  virtual int64_t sink_at(int64_t /*tokens*/, int64_t /*head_dim*/) const { return 0; }

  // Bytes of one tile, the same for keys and values.
  virtual int64_t tile_bytes(int64_t tokens, int64_t head_dim) const = 0;
  // rows: [tokens][head_dim], finite, each exactly an f16. Must not depend on the instruction set.
  virtual void store(KvPart part, const float* rows, int64_t tokens, int64_t head_dim, uint8_t* tile) const = 0;
  // Whether the tile is also what store_token() makes of its rows, one by one, in any order, each as often as it likes.
  // Several threads may store different tokens of a tile at once.
  virtual bool by_token(KvPart /*part*/) const { return false; }
  virtual void store_token(KvPart /*part*/, const float* /*row*/, int64_t /*token*/, int64_t /*tokens*/,
                           int64_t /*head_dim*/, uint8_t* /*tile*/) const {}
  // Of a part that is encoded by token: whether an encoded token can go to another place, of its tile or of another
  // one. Else it is decoded and stored anew.
  virtual bool moves_tokens() const { return false; }
  virtual void move_token(KvPart /*part*/, const uint8_t* /*from*/, int64_t /*token*/, uint8_t* /*to*/,
                          int64_t /*place*/, int64_t /*tokens*/, int64_t /*head_dim*/) const {}
  // Rows of f16, [tokens][head_dim]; finite for every tile of store(). The same bits on every instruction set.
  virtual void load(KvPart part, const KernelTable& kernels, const uint8_t* tile, int64_t tokens, int64_t head_dim,
                    uint8_t* rows) const = 0;
  // How attention may read tiles without load(), those of layer() with its own codes; none: it cannot. Where keys are
  // stored before RoPE, the caller sets LevelTiles::turns.
  virtual std::optional<LevelTiles> level_tiles(int64_t /*tokens*/, int64_t /*head_dim*/) const { return {}; }

  // For heads of 128.
  double bits_per_value() const;
};

using KvCodecFactory = Result<std::shared_ptr<const KvCodec>> (*)(const OptionValues& options);
const Registry<KvCodecFactory>& kv_codecs();

// `text` is NAME[:key=value,...]; null if NAME is no codec but, perhaps, a format of rows. Errors (user): a codec's
// options.
Result<std::shared_ptr<const KvCodec>> find_kv_codec(std::string_view text);

}  // namespace millrace
