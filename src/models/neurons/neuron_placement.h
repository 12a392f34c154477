// Which neurons stay in memory (Song et al., 2023, "PowerInfer", section 6.3). An integer program: choose neurons so
// that the tokens that use them are as many as possible, within the memory, and so that each layer has none of them or
// at least `least`.
//
// The paper hands groups of 64 neurons with similar frequencies to a solver. Neurons of a model are equally large here,
// so that a layer's best choice of n groups is its n most frequent ones, and the program is a knapsack over the numbers
// of groups by layer. Without `least` the gains of a layer's groups fall, and taking the most frequent groups first is
// optimal; with it, dynamic programming over the layers gives the exact optimum. No solver is needed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace millrace {

struct NeuronPlacement {
  std::vector<std::vector<int32_t>> hot;  // by layer, ascending
  double share = 0;                       // share of all uses of neurons that are uses of hot ones
};

// `active`: by layer, how often each neuron was used. `capacity`: neurons that stay, of all layers. `group`: neurons
// that are placed together; `least`: neurons of a layer that has some.
NeuronPlacement place_neurons(std::span<const std::span<const uint32_t>> active, int64_t capacity, int64_t group,
                              int64_t least);

}  // namespace millrace
