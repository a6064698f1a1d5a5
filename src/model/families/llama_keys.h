// Keys of config.json that the families of Llama's block share. Plain functions; any thread.
#pragma once

#include <string_view>
#include <vector>

#include "src/model/family.h"

namespace spillway {

// Values of a family where config.json has none, as transformers has them.
struct LlamaDefaults {
  int64_t max_positions = 0;
  int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  bool tied_head = false;
  bool own_rope = false;  // the family's own file reads it
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
  double norm_epsilon = 1e-6;
  double theta = 10000.0;
  int64_t num_kv_heads = 0;  // 0: as many as heads of queries
};

// Shape of Llama's block without biases. Keys that are neither shared nor among `own` are refused,
// as RefuseOtherKeys does. Throws: Error kModelInconsistent, kModelUnsupported.
ModelShape ReadLlamaKeys(const JsonNode& config, const LlamaDefaults& defaults,
                         std::vector<std::string_view> own);

// "layer_types", one "full_attention" or "sliding_attention" for each decoder layer; empty where
// there are none. Throws: Error kModelInconsistent, kModelUnsupported.
std::vector<bool> ReadLayerTypes(const JsonNode& config, int64_t num_layers);

// Rotary positions of models whose full layers and windowed ones have their own.
struct RopesOfTypes {
  double theta;                 // of full layers, where config.json has none
  std::string_view window_key;  // what it calls the windowed layers' before transformers 5
  double window_theta;          // where it has none
};

// "rope_parameters" for each type of layers, or as transformers wrote them before 5: a scaling is
// then the full layers'. Throws: as ReadRope.
void ReadRopesOfTypes(const JsonNode& config, const RopesOfTypes& of, ModelShape& shape);

// "sliding_window": `fallback` where there is no such key, 0 where it is null.
// Throws: Error kModelInconsistent.
int64_t ReadWindow(const JsonNode& config, int64_t fallback);

// Layers with a window where "layer_types" does not say it: all but each `period`th.
std::vector<bool> AllButEach(int64_t period, int64_t num_layers);

// Gives these layers this window; one that no row is longer than is none. Layers that are to have
// a window and do not are refused. Throws: Error kModelInconsistent.
void SetWindows(const JsonNode& config, int64_t window, std::vector<bool> windowed,
                ModelShape& shape);

// A size that is published: heads of head_dim elements, or of hidden_size / num_heads.
struct LlamaSize {
  NamedSize size;
  int64_t num_kv_heads;
  int64_t ffn_size;
  bool tied_head = false;
  int64_t head_dim = 0;
};

// `shape`, with what is common to a family's sizes, in that size.
ModelShape WithLlamaSize(ModelShape shape, const LlamaSize& of);

// Llama's block without biases, with an RMS norm's epsilon of 1e-6.
ModelShape LlamaBlock(int64_t vocab_size, int64_t max_positions, double theta);

}  // namespace spillway
