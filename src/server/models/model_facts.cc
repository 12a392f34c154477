#include "server/models/model_facts.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/ordered_json.h"
#include "models/weight_parts_loader.h"
#include "run/embedded_model.h"
#include "run/language_model.h"
#include "server/models/model_registry.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kHeadBytes = 1 << 20;  // contains the metadata and the tensor table, or most of them
constexpr int64_t kSampleBytes = 4 << 10;
constexpr int64_t kSamples = 64;
constexpr size_t kMaxKnown = 4096;

// GGUF's general.file_type, with llama.cpp's names.
constexpr std::array<const char*, 42> kFileTypes = {
    "F32",    "F16",     "Q4_0",   "Q4_1",   "",       "",       "",       "Q8_0",  "Q5_0",    "Q5_1",   "Q2_K",
    "Q3_K_S", "Q3_K_M",  "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K",  "IQ2_XXS", "IQ2_XS", "Q2_K_S",
    "IQ3_XS", "IQ3_XXS", "IQ1_S",  "IQ4_NL", "IQ3_S",  "IQ3_M",  "IQ2_S",  "IQ2_M", "IQ4_XS",  "IQ1_M",  "BF16",
    "",       "",        "",       "TQ1_0",  "TQ2_0",  "MXFP4",  "NVFP4",  "Q1_0",  "Q2_0"};

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void add(const void* bytes, size_t count) { EVP_DigestUpdate(context_.get(), bytes, count); }
  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
    std::string out;
    for (unsigned i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
    return out;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

// Calls part(offset, count) for each part of a file of `size` bytes that its digest covers.
template <typename Part>
void for_each_part(int64_t size, Part part) {
  part(0, std::min(size, kHeadBytes));
  const int64_t rest = size - kHeadBytes;
  if (rest <= 0) return;
  for (int64_t i = 0; i < kSamples; ++i) {
    const int64_t offset = kHeadBytes + rest / kSamples * i;
    part(offset, std::min(kSampleBytes, size - offset));
  }
}

void add_size(Sha256& digest, int64_t size) {
  const std::string text = fmt::format("{}\n", size);
  digest.add(text.data(), text.size());
}

std::string digest_of(const std::vector<fs::path>& paths) {
  Sha256 digest;
  std::vector<char> bytes(kHeadBytes);
  for (const fs::path& path : paths) {
    std::error_code failed;
    const auto size = static_cast<int64_t>(fs::file_size(path, failed));
    std::ifstream file(path, std::ios::binary);
    if (failed || !file) continue;
    add_size(digest, size);
    for_each_part(size, [&](int64_t offset, int64_t count) {
      file.clear();
      file.seekg(offset);
      file.read(bytes.data(), count);
      digest.add(bytes.data(), static_cast<size_t>(file.gcount()));
    });
  }
  return digest.hex();
}

std::string digest_of(std::span<const uint8_t> image) {
  Sha256 digest;
  add_size(digest, static_cast<int64_t>(image.size()));
  for_each_part(static_cast<int64_t>(image.size()),
                [&](int64_t offset, int64_t count) { digest.add(image.data() + offset, static_cast<size_t>(count)); });
  return digest.hex();
}

int64_t unix_time(fs::file_time_type time) {
  const auto since = time.time_since_epoch() - fs::file_time_type::clock::now().time_since_epoch() +
                     std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

void add_contents(ModelFact& fact, const ModelFiles& files) {
  fact.family = files.architecture;
  fact.quantization = quantization_name(files);
  fact.parameters = count_parameters(files);
}

}  // namespace

std::string quantization_name(const ModelFiles& files) {
  std::map<std::string, double> values;
  for (const StoredTensor& stored : files.tensors) {
    if (stored.tensor.rank <= 1) continue;
    const Format* indices = nullptr;  // their type says nothing
    const int64_t weights = stored_weights(files, stored, &indices);
    values[indices ? std::string(indices->name) : stored.type_name] +=
        static_cast<double>(indices ? weights : stored.tensor.values());
  }
  if (values.empty()) return "";
  std::string most = std::ranges::max_element(values, {}, [](const auto& one) { return one.second; })->first;
  std::ranges::transform(most, most.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (files.kind != ModelFiles::Kind::gguf || !files.config) return most;
  const auto type = files.config->find("general.file_type");
  if (type == files.config->end() || !type->is_number_integer()) return most;
  const auto number = type->get<int64_t>();
  const std::string named =
      number >= 0 && number < static_cast<int64_t>(kFileTypes.size()) ? kFileTypes[static_cast<size_t>(number)] : "";
  return named.starts_with(most) ? named : most;
}

ModelFact ModelFacts::of(const ModelStatus& model, int& may_open) {
  std::string path = model.path;
  if (path.empty() && model.served) path = model.served->model->parts().files->path;
  const EmbeddedModel* image = find_embedded_model(path);
  const std::vector<fs::path> paths = image ? std::vector<fs::path>() : model_file_paths(path);
  ModelFact fact;
  std::string key = path;
  for (const fs::path& one : paths) {
    std::error_code failed;
    const auto size = fs::file_size(one, failed);
    if (failed) continue;
    const auto time = fs::last_write_time(one, failed);
    fact.bytes += static_cast<int64_t>(size);
    if (!failed) fact.modified = std::max(fact.modified, unix_time(time));
    key += fmt::format("\n{} {} {}", one.string(), size, failed ? 0 : time.time_since_epoch().count());
  }
  {
    std::lock_guard lock(mutex_);
    if (const auto found = known_.find(key); found != known_.end()) {
      const int64_t modified = fact.modified;
      fact = found->second;
      fact.modified = modified;
    }
  }
  const bool has_digest = !fact.digest.empty(), has_contents = !fact.quantization.empty();
  if (!has_digest) {
    if (fact.bytes > 0) {
      fact.digest = digest_of(paths);
    } else {
      fact.digest = digest_of(image ? image->image : std::span<const uint8_t>());
      if (image) fact.bytes = static_cast<int64_t>(image->image.size());
    }
  }
  if (model.served) {
    add_contents(fact, *model.served->model->parts().files);
  } else if (!has_contents && may_open > 0) {
    --may_open;
    if (auto files = open_model(path); files.ok()) add_contents(fact, *files);
  }
  if (has_digest && (has_contents || fact.quantization.empty())) return fact;
  std::lock_guard lock(mutex_);
  if (known_.size() >= kMaxKnown) known_.clear();  // mostly of files that no longer exist
  known_[key] = fact;
  return fact;
}

}  // namespace millrace
