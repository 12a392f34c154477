// Tensors of an output that hold several matrices: experts of a layer, heads of latent attention, and matrices of
// residual streams.
#pragma once

#include <string>
#include <vector>

#include "models/arch.h"
#include "models/convert/format_choice.h"
#include "models/convert/tensor_source.h"

namespace millrace {

// Returns the name of the stack in a GGUF file to which a matrix belongs: blk.3.ffn_up.7.weight is in
// blk.3.ffn_up_exps.weight. Empty: the matrix is in no stack.
std::string stack_name(const std::string& name);

// The tensors of a GGUF file. Adjacent matrices of one stack become one tensor.
std::vector<OutputTensor> gguf_outputs(std::vector<SourceTensor> sources, FormatChoice& formats);

// Folders with stacked experts (Arch::stacked_experts): adds an expert's matrix to its stack, whose canonical name is
// blk.N.ffn_down_exps.weight, or blk.N.ffn_gate_up_exps.weight with the gate and then the up matrix of each expert.
// Returns false if the matrix belongs to none. All gates must come before the up matrices.
bool add_to_folder_stack(SourceTensor& source, FormatChoice& formats, std::vector<OutputTensor>& outputs);

// Returns the name of the matrix of a folder whose rows begin with those of a source: blk.3.attn_kv_b.0.weight begins
// blk.3.attn_kv_b.weight. Empty: the source is a matrix of its own.
std::string joined_name(const std::string& name);

// Adds a source to the last output if that is the matrix to which its rows belong. Returns false otherwise.
bool append_rows(SourceTensor& source, std::vector<OutputTensor>& outputs);

// Gemma 3n: the matrices of further residual streams, which folders hold one by one, become two stacks.
void stack_streams(std::vector<OutputTensor>& outputs);

// Gemma 3n and 4: adds rows of zeros to the table of the layers' inputs, if it has none for the last tokens.
void pad_layer_inputs(std::vector<OutputTensor>& outputs, int64_t vocab);

}  // namespace millrace
