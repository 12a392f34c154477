// KvCodec: a format of the KV cache that encodes tiles. A tile holds the keys or the values of one block of tokens in
// one head. A codec may share scales along tokens as well as along channels; formats of rows (formats/format.h) cannot.
// Each codec is one file in codecs/ and one entry in codecs/builtin.cc. Const and stateless: one codec serves all
// streams and threads.
//
// A rule of the slot alone, never of prefill chunks, says which tokens a query sees encoded. The tokens of the query's
// own block, and residual() tokens before that block, are raw rows of f16. All older blocks are encoded.
//
//   slots   [ encoded blocks | residual(), raw | own block, raw: up to the query ]
//
// Raw rows are in a tail that the stream has in addition to its blocks (KvLayout::tail_tokens). A block is encoded when
// its last token is stored. Its encoding depends only on the raw rows of its tokens, so streams may share it. If a part
// of the encoding depends on one row alone, it is computed with that row, which spreads the work over the steps that
// fill the block (by_token()).
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
  // Checks that the codec fits a model with this many layers. Errors: user.
  virtual Result<void> check_layers(int64_t /*layers*/) const { return {}; }
  // Returns the codec of one layer; its tiles have the same size as those of this codec.
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
  // Returns true if calling store_token() for every row, in any order and any number of times, produces the same tile
  // as store(). Several threads may then store different tokens of a tile at once.
  virtual bool by_token(KvPart /*part*/) const { return false; }
  virtual void store_token(KvPart /*part*/, const float* /*row*/, int64_t /*token*/, int64_t /*tokens*/,
                           int64_t /*head_dim*/, uint8_t* /*tile*/) const {}
  // Used only where by_token() is true. Returns true if an encoded token can be moved to another place of this tile or
  // of another one. Otherwise the tokens are decoded and stored again.
  virtual bool moves_tokens() const { return false; }
  virtual void move_token(KvPart /*part*/, const uint8_t* /*from*/, int64_t /*token*/, uint8_t* /*to*/,
                          int64_t /*place*/, int64_t /*tokens*/, int64_t /*head_dim*/) const {}
  // Decodes a tile to rows of f16, [tokens][head_dim]. The rows are finite for every tile that store() wrote, and have
  // the same bits on every instruction set.
  virtual void load(KvPart part, const KernelTable& kernels, const uint8_t* tile, int64_t tokens, int64_t head_dim,
                    uint8_t* rows) const = 0;
  // How attention may read tiles without load(), with the codes of layer(); none: it cannot. If keys are stored before
  // RoPE, the caller sets LevelTiles::turns.
  virtual std::optional<LevelTiles> level_tiles(int64_t /*tokens*/, int64_t /*head_dim*/) const { return {}; }

  // Average bits of a value, for heads of 128.
  double bits_per_value() const;
};

using KvCodecFactory = Result<std::shared_ptr<const KvCodec>> (*)(const OptionValues& options);
const Registry<KvCodecFactory>& kv_codecs();

// `text` is NAME[:key=value,...]; null if NAME is no codec but, perhaps, a format of rows. Errors (user): a codec's
// options.
Result<std::shared_ptr<const KvCodec>> find_kv_codec(std::string_view text);

}  // namespace millrace
