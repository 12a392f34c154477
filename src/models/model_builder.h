// ModelBuilder: fills a Model from files, in three passes: describe every weight, check them, pack them.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/choose.h"
#include "models/model.h"
#include "models/weight_loader.h"
#include "models/weight_packer.h"
#include "models/weight_source.h"

namespace millrace {

class ModelBuilder {
 public:
  ModelBuilder(std::shared_ptr<const ModelFiles> files, const Arch& arch, ArchSpec spec)
      : ModelBuilder(std::move(files), arch, std::move(spec), nullptr) {}
  Result<std::unique_ptr<Model>> build(const KernelTable& table, ThreadPool& pool, const ModelOptions& options);

  // Checks that the files have every tensor that a model of this spec needs, in its shape. Packs nothing. Errors: those
  // of WeightLoader.
  static Result<void> check_tensors(std::shared_ptr<const ModelFiles> files, const Arch& arch, const ArchSpec& spec);

  // Where the packed weights of a model of this spec are, from 0 on, and the bytes that it needs next to them. Packs
  // nothing. Errors: those of WeightLoader and WeightPacker::add().
  struct Sizes {
    WeightPlaces places;
    int64_t packed_bytes = 0;
    int64_t others = 0;  // tables in files, unpacked tensors, weight parts, and the buffers for reading the files
    int64_t limit(int64_t left) const;  // bytes that weights may have, if everything may have `left`
  };
  static Result<Sizes> measure(std::shared_ptr<const ModelFiles> files, const Arch& arch, const ArchSpec& spec,
                               const KernelTable& table, int threads);

  // The tensors that a model of this spec asks for, also those that the file lacks. Lists only the first of layers
  // that are alike, and at most 8 kinds of layers.
  static std::vector<TensorRequest> list_requests(std::shared_ptr<const ModelFiles> files, const Arch& arch,
                                                  const ArchSpec& spec);

 private:
  ModelBuilder(std::shared_ptr<const ModelFiles> files, const Arch& arch, ArchSpec spec,
               std::vector<TensorRequest>* requests);
  // Describes the weights outside the layers, and makes room for the layers.
  Result<void> load_around_layers();
  Result<void> load_embeddings();
  Result<void> load_layer_inputs();
  Result<void> load_types();
  Result<void> load_layer(int64_t index);
  Result<void> load_layer_end(const std::string& prefix, LayerWeights& layer);
  Result<void> load_alt_up(const std::string& prefix, LayerWeights& layer);
  Result<std::vector<Weight>> load_streams(const std::string& name);
  Result<Weight> load_shortcut(int64_t layer, bool mlp);
  Result<NormWeights> load_norm(const std::string& name, bool wanted);
  // A tensor that the file stores. Empty if the file lacks it, which only list_requests() allows.
  StoredTensor stored(std::string_view name) const;
  std::vector<Weight*> all_weights();
  int64_t measure_parts();
  int64_t unpacked_bytes() const;
  int64_t table_bytes() const;  // bytes of tables that are read in place
  // Gives experts that the weight source calls cold its cold format; their stored matrices move to converted_.
  Result<void> convert_cold_experts(const ModelOptions& options);
  Result<void> convert(Weight& weight, const Format& to);
  Result<void> plan_packing(WeightPacker& packer);
  int64_t bytes_beside(const WeightPacker& packer, int threads) const;
  OffloadModel sizes_of(const WeightPlaces& places) const;
  Result<MemoryHold> take_memory(const WeightPacker& packer, const ThreadPool& pool,
                                 const std::shared_ptr<MemoryAccounts>& accounts, int64_t resident, int64_t* window);
  WeightPlaces places(const WeightPacker& packer, int64_t payload);
  Result<void> place_streamed(const WeightPacker& packer, const KernelTable& table, ThreadPool& pool,
                              const ModelOptions& options, const ChosenMember<WeightSourceMember>& source);
  Result<void> lock_resident(const ModelOptions& options) const;
  bool packs_in_background(const ModelOptions& options) const;
  Result<void> pack_in_background(WeightPacker packer, ThreadPool& pool, const ModelOptions& options);
  Result<void> place_packed(const WeightPacker& packer, const KernelTable& table, ThreadPool& pool,
                            const ModelOptions& options);
  Result<void> pack(const KernelTable& table, ThreadPool& pool, const ModelOptions& options);

  std::shared_ptr<const ModelFiles> files_;
  WeightLoader loader_;
  std::vector<Weight> tables_;                           // embeddings that are read in place: checked, never packed
  std::unordered_map<const Weight*, Weight> converted_;  // by matrix of the model: the matrix in the files
  std::unique_ptr<Model> model_;
};

}  // namespace millrace
