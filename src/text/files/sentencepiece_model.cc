// Reads tokenizer.model of SentencePiece, a protobuf (sentencepiece_model.proto), with a hand-written parser:
//
//   ModelProto:  1 pieces {1 text, 2 score (float), 3 type}   2 trainer_spec   3 normalizer_spec   5 denormalizer
//   TrainerSpec: 3 model_type (1 unigram, 2 bpe)  35 byte_fallback  24 treat_whitespace_as_suffix
//                40 unk_id  41 bos_id  42 eos_id  43 pad_id  44 unk_surface
//   NormalizerSpec: 2 precompiled_charsmap  3 add_dummy_prefix  4 remove_extra_whitespaces  5 escape_whitespaces
//
// Field numbers are frozen by the format. Unknown fields are skipped.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/enum_table.h"
#include "text/tokenizer_files.h"

namespace millrace {
namespace {

struct Field {
  uint32_t number = 0;
  uint64_t value = 0;      // varint, fixed32, fixed64
  std::string_view bytes;  // length-delimited
};

class Reader {
 public:
  explicit Reader(std::string_view data) : data_(data) {}

  bool done() const { return pos_ >= data_.size(); }

  // Returns false if the data is malformed.
  bool next(Field& field) {
    uint64_t tag = 0;
    field = {};
    if (!varint(tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX) return false;
    field.number = static_cast<uint32_t>(tag >> 3);
    switch (tag & 7) {
      case 0: return varint(field.value);
      case 1: return fixed(8, field.value);
      case 5: return fixed(4, field.value);
      case 2: {
        uint64_t size = 0;
        if (!varint(size) || size > data_.size() - pos_) return false;
        field.bytes = data_.substr(pos_, size);
        pos_ += size;
        return true;
      }
      default: return false;  // groups are not used
    }
  }

 private:
  bool varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && pos_ < data_.size(); shift += 7) {
      const auto byte = static_cast<uint8_t>(data_[pos_++]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool fixed(size_t bytes, uint64_t& value) {
    if (data_.size() - pos_ < bytes) return false;
    value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(data_[pos_ + i])} << (8 * i);
    pos_ += bytes;
    return true;
  }

  std::string_view data_;
  size_t pos_ = 0;
};

Error malformed(std::string_view part) {
  return Error::corrupt(fmt::format("tokenizer.model: {} is malformed or cut off; fetch the file again", part));
}

struct TrainerIds {
  int32_t unk = 0, bos = 1, eos = 2, pad = -1;  // the proto's defaults
};

Result<void> read_piece(std::string_view data, TokenizerSpec& spec) {
  Reader reader(data);
  std::string text;
  float score = 0;
  int64_t type = 1;
  for (Field field; !reader.done();) {
    if (!reader.next(field)) return malformed(fmt::format("piece {}", spec.tokens.size()));
    if (field.number == 1)
      text = field.bytes;
    else if (field.number == 2)
      score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    else if (field.number == 3)
      type = static_cast<int64_t>(field.value);
  }
  const auto known = find_enumerator<TokenType>(type);
  if (!known)
    return Error::corrupt(fmt::format("tokenizer.model: piece {} has an unknown type: {}", spec.tokens.size(), type));
  spec.tokens.push_back(std::move(text));
  spec.scores.push_back(score);
  spec.types.push_back(*known);
  return {};
}

Result<void> read_trainer(std::string_view data, TokenizerSpec& spec, TrainerIds& ids) {
  Reader reader(data);
  for (Field field; !reader.done();) {
    if (!reader.next(field)) return malformed("trainer_spec");
    switch (field.number) {
      case 3:
        if (field.value != 1 && field.value != 2) {
          return Error::unsupported(
              fmt::format("tokenizer.model: model_type is neither unigram (1) nor bpe (2): {}", field.value));
        }
        spec.kind = field.value == 1 ? "unigram" : "spm";
        break;
      case 24: spec.whitespace_suffix = field.value != 0; break;
      case 35: spec.byte_fallback = field.value != 0; break;
      case 40: ids.unk = static_cast<int32_t>(field.value); break;
      case 41: ids.bos = static_cast<int32_t>(field.value); break;
      case 42: ids.eos = static_cast<int32_t>(field.value); break;
      case 43: ids.pad = static_cast<int32_t>(field.value); break;
      case 44: spec.unk_surface = field.bytes; break;
      default: break;
    }
  }
  return {};
}

Result<void> read_normalizer(std::string_view data, TokenizerSpec& spec) {
  Reader reader(data);
  for (Field field; !reader.done();) {
    if (!reader.next(field)) return malformed("normalizer_spec");
    switch (field.number) {
      case 2: spec.precompiled_charsmap.assign(field.bytes.begin(), field.bytes.end()); break;
      case 3: spec.add_space_prefix = field.value != 0; break;
      case 4: spec.remove_extra_whitespaces = field.value != 0; break;
      case 5: spec.escape_whitespaces = field.value != 0; break;
      default: break;
    }
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> read_sentencepiece_model(std::string_view bytes) {
  TokenizerSpec spec;
  spec.kind = "unigram";
  spec.byte_fallback = false;
  spec.remove_extra_whitespaces = true;
  spec.space_prefix = SpacePrefix::after_control;
  spec.unk_surface = " \xE2\x81\x87 ";  // " ⁇ "
  TrainerIds ids;
  Reader reader(bytes);
  for (Field field; !reader.done();) {
    if (!reader.next(field)) return malformed(fmt::format("field after {} pieces", spec.tokens.size()));
    if (field.number == 1) MILLRACE_TRY_VOID(read_piece(field.bytes, spec));
    if (field.number == 2) MILLRACE_TRY_VOID(read_trainer(field.bytes, spec, ids));
    if (field.number == 3) MILLRACE_TRY_VOID(read_normalizer(field.bytes, spec));
  }
  if (spec.tokens.empty()) return malformed("vocabulary (no pieces)");
  // An id of trainer_spec is used only if the type of the piece matches.
  const auto id_of = [&](int32_t id, TokenType type) -> std::optional<TokenId> {
    if (id < 0 || static_cast<size_t>(id) >= spec.tokens.size() || spec.types[static_cast<size_t>(id)] != type)
      return std::nullopt;
    return id;
  };
  spec.unk = id_of(ids.unk, TokenType::unknown);
  for (size_t i = 0; !spec.unk && i < spec.types.size(); ++i) {
    if (spec.types[i] == TokenType::unknown) spec.unk = static_cast<TokenId>(i);
  }
  spec.bos = id_of(ids.bos, TokenType::control);
  spec.eos = id_of(ids.eos, TokenType::control);
  spec.pad = id_of(ids.pad, TokenType::control);
  spec.add_bos = spec.bos.has_value() && spec.kind == "spm";
  spec.add_eos = spec.eos.has_value() && spec.kind == "unigram" && !spec.bos;  // T5 appends EOS to its inputs
  infer_end_of_generation(spec);
  return spec;
}

}  // namespace millrace
