// Architectures in llama.cpp's list (src/llama-arch.cpp, August 2026) by what each needs that this project lacked when
// the row was written. Names that have become known are left out of the page.
#pragma once

namespace millrace {

struct OtherArchitectures {
  const char* names;  // separated by spaces
  const char* needs;
};

inline constexpr OtherArchitectures kOtherArchitectures[] = {
    {"qwen xverse exaone minicpm granite chatglm glm4 ernie4_5 pangu-embedded hunyuan-dense seed_oss exaone4 openelm "
     "deepseek bailingmoe granitemoe",
     "a file in `src/models/arch/`: all blocks exist (plain or grouped attention, scales, rope by kind of layer, heads "
     "by layer, softmax experts)"},
    {"glm4moe minimax-m2 ernie4_5-moe dots1 exaone-moe hunyuan-moe bailingmoe2 hy_v3 olmoe grok mellum phimoe",
     "a file in `src/models/arch/`: sigmoid or softmax experts on plain attention exist; some need a norm of queries "
     "and keys over the full width, or a LayerNorm"},
    {"mistral4 minicpm3", "a file in `src/models/arch/`: latent attention exists; scales or the queries' temperature"},
    {"plm arcee nemotron jais2",
     "the squared ReLU; plm also latent attention without a rank of queries; nemotron and "
     "jais2 LayerNorm with biases"},
    {"mistral3 llama4",
     "a temperature of queries that grows with the position; llama4 also layers that see chunks of "
     "8192 tokens, norms of queries and keys without weights, and weights before the experts"},
    {"apertus", "the xIELU activation"},
    {"bitnet maincoder talkie nanbeige grovemoe plamo3 muse-glimmer smallthinker",
     "norms or scales at places inside a block that no family here has; grovemoe also experts that share further "
     "experts, smallthinker a router before attention"},
    {"afmoe laguna step35 mimo2",
     "a gate of attention's output by head or with its own matrix, next to windows and "
     "sigmoid experts; mimo2 keys and values of different sizes with sinks"},
    {"qwen4exp", "hyper-connections next to gated delta nets"},
    {"mamba2 nemotron_h nemotron_h_moe granitehybrid jamba plamo2",
     "a file in `src/models/arch/`: Mamba-2 exists; layers that are a mixer alone or an MLP alone, jamba Mamba with "
     "further norms"},
    {"graniteswitch granite_swa",
     "adapters that a router chooses inside the model (graniteswitch); windows next to "
     "the Granite scales"},
    {"kimi-linear kimi-k3 bailingmoe3", "a delta rule with a decay for each channel, next to latent attention"},
    {"lfm2 lfm2moe", "a gated short convolution as a mixer"},
    {"gemma3n gemma4",
     "keys and values that later layers share, embeddings of each layer, an MLP next to the experts; "
     "gemma3n also several residual streams"},
    {"gemma4-assistant eagle3 dflash", "drafters that are models of their own: files for a target's hidden states"},
    {"command-r cohere2 cohere2moe falcon phi2 gptneox gptj stablelm plamo",
     "attention and MLP that read the same norm and add to one residual sum; most with LayerNorm"},
    {"starcoder starcoder2 codeshell orion olmo dbrx bloom mpt refact jais baichuan",
     "LayerNorm models with their variants: norms without weights (olmo), clipped queries and keys (dbrx, olmo), ALiBi "
     "(bloom, mpt, refact, jais, larger baichuan)"},
    {"deci", "layers whose attention or MLP is left out or is one matrix"},
    {"arctic",
     "experts that read the layer's input from before attention; a dense MLP next to experts exists where both read "
     "attention's output"},
    {"deepseek32 glm-dsa minimax-m3 dots3note", "a trained indexer that chooses the keys of sparse attention"},
    {"deepseek4", "hyper-connections, keys and values that learned gates compress, layers routed by a hash"},
    {"minimax-01", "lightning attention: a linear state with a fixed decay for each head"},
    {"rwkv6 rwkv6qwen2 rwkv7 arwkv7",
     "the time mixing of RWKV: token shift, decays of low rank, a state for each head"},
    {"neo-bert llama-embed",
     "a file in `src/models/arch/`: encoders exist (attention without a mask, pooling, norms before and after blocks, "
     "rotary positions, SwiGLU)"},
    {"t5 t5encoder", "cross-attention, and buckets of relative positions"},
    {"dream llada llada-moe rnd1", "decoding by diffusion: attention without a mask, tokens in any order"},
    {"qwen2vl qwen3vl qwen3vlmoe cogvlm chameleon paddleocr hunyuan_vl deepseek2-ocr clip",
     "an encoder of pictures and its positions in two dimensions; [rows in place of tokens](embedding-rows.md) exist"},
    {"wavtokenizer-dec qwen3tts pockettts", "models of sound, which have other inputs and outputs"},
};

}  // namespace millrace
