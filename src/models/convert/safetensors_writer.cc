#include "models/convert/safetensors_writer.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/ordered_json.h"
#include "formats/format.h"
#include "loader/file_text.h"
#include "tensor/aligned_buffer.h"

namespace millrace {
namespace {

constexpr size_t kHeaderAlignment = 8;

Result<std::string> make_header(const std::vector<OutputTensor>& tensors, int64_t& total) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};  // expected by some loaders
  auto& object = header.get_ref<nlohmann::ordered_json::object_t&>();
  total = 0;
  for (const OutputTensor& tensor : tensors) {
    if (tensor.format->safetensors.empty()) {
      return Error::unsupported(
          fmt::format("tensor {}: safetensors files cannot hold format {}; choose f32, f16 or bf16",
                      quoted_name(tensor.name), tensor.format->name));
    }
    const int64_t bytes = tensor.bytes();
    nlohmann::ordered_json entry = {{"dtype", std::string(tensor.format->safetensors)},
                                    {"shape", tensor.dims},
                                    {"data_offsets", {total, total + bytes}}};
    object.std::vector<nlohmann::ordered_json::object_t::value_type>::emplace_back(tensor.name, std::move(entry));
    total += bytes;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  const uint64_t size = text.size();
  std::string out(reinterpret_cast<const char*>(&size), sizeof(size));
  return out + text;
}

}  // namespace

Result<void> write_safetensors(const std::string& path, const std::vector<OutputTensor>& tensors, ThreadPool& pool,
                               const std::function<void(int64_t, int64_t)>& progress) {
  int64_t total = 0, written = 0;
  MILLRACE_TRY(std::string header, make_header(tensors, total));
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wbx"), std::fclose);
  if (!file) return Error::user(fmt::format("{}: cannot create: {}", path, std::strerror(errno)));
  auto fail = [&](Error error) {
    file.reset();
    std::remove(path.c_str());
    return error;
  };
  auto write = [&](const void* data, size_t bytes) { return std::fwrite(data, 1, bytes, file.get()) == bytes; };
  auto full = [&] { return Error::resource(fmt::format("{}: cannot write: {}", path, std::strerror(errno))); };
  if (!write(header.data(), header.size())) return fail(full());
  for (const OutputTensor& tensor : tensors) {
    const int64_t bytes = tensor.bytes();
    auto buffer = AlignedBuffer::allocate(bytes, tensor.name.c_str());
    if (!buffer.ok()) return fail(std::move(buffer).error());
    if (auto made = tensor.produce(buffer->data(), pool); !made.ok()) return fail(made.error());
    if (!write(buffer->data(), static_cast<size_t>(bytes))) return fail(full());
    written += bytes;
    if (progress) progress(written, total);
  }
  if (std::fflush(file.get()) != 0 || std::fclose(file.release()) != 0) return fail(full());
  return {};
}

}  // namespace millrace
