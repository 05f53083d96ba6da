// Terms of the field by group; generated from docs/glossary.toml by `make docs`.

export const GROUPS = [
 {
  "title": "From text to vectors",
  "terms": [
   [
    "token",
    "A piece of text that the model reads as one unit: a word, part of a word, a character or a byte. Each has an integer id."
   ],
   [
    "tokenizer",
    "Cuts text into tokens and maps them to ids; decoding is the way back."
   ],
   [
    "BPE",
    "Byte-pair encoding: a sub-word vocabulary learned by merging frequent pairs. WordPiece and unigram are relatives."
   ],
   [
    "special tokens",
    "Tokens with a role instead of a text: `bos` (beginning of sequence), `eos` (end), `pad` (padding), `decoder_start`."
   ],
   [
    "chat template",
    "A Jinja template that turns a list of messages into the one prompt a chat model was trained on."
   ],
   [
    "embedding",
    "A table with one learned vector per token id: the input of the first block."
   ],
   [
    "positional encoding",
    "Tells attention where a token stands, since attention itself does not see order."
   ],
   [
    "sinusoidal",
    "The fixed sine and cosine positional encoding of the 2017 paper."
   ],
   [
    "RoPE",
    "Rotary position embedding: queries and keys are rotated by an angle that grows with the position."
   ],
   [
    "YaRN",
    "A scaling of RoPE to longer sequences: slow rotations are slowed down further, fast ones are kept."
   ],
   [
    "NoPE",
    "Layers without any position encoding."
   ],
   [
    "ALiBi",
    "A bias on the scores that grows with the distance between query and key."
   ]
  ]
 },
 {
  "title": "Attention",
  "terms": [
   [
    "query, key, value",
    "Three projections of each vector: a query is compared with all keys, and the result weights the values."
   ],
   [
    "scaled dot-product attention",
    "softmax(QKᵀ/√d_k + M)V. peasy writes it once, as named steps, for NumPy and torch."
   ],
   [
    "attention sink",
    "A learned score per head without a key: weight that a query gives to no token."
   ],
   [
    "scores",
    "How well each query fits each key, before softmax."
   ],
   [
    "additive attention",
    "Scores from a small network, vᵀtanh(Wq + Uk), as in the recurrent translators of 2015."
   ],
   [
    "softmax",
    "Turns a row of scores into positive weights that sum to 1."
   ],
   [
    "attention mask",
    "A boolean matrix that says which query may attend to which key; True = may attend."
   ],
   [
    "causal mask",
    "Each position attends only to itself and to earlier ones, so a decoder cannot see the future."
   ],
   [
    "padding mask",
    "Marks the real tokens of a padded batch, so that padding is never attended to."
   ],
   [
    "sliding window",
    "Each query attends only to the nearest keys."
   ],
   [
    "attention head",
    "One of several attentions that run side by side in a layer, each with its own projections."
   ],
   [
    "GQA",
    "Grouped-query attention: several query heads share one key/value head, which makes the KV cache smaller."
   ],
   [
    "self-attention",
    "Queries, keys and values come from the same sequence."
   ],
   [
    "cross-attention",
    "Queries come from the decoder, keys and values from the encoder's output."
   ],
   [
    "fused attention",
    "torch's kernel that computes attention without storing the weights; peasy uses it when nothing is captured."
   ]
  ]
 },
 {
  "title": "Blocks and models",
  "terms": [
   [
    "block",
    "One Transformer layer: attention and feed-forward network, each with a residual connection and a norm."
   ],
   [
    "residual connection",
    "A layer adds its result to its input instead of replacing it; the running sum is the residual stream."
   ],
   [
    "layer norm",
    "Rescales each vector to mean 0 and variance 1, then applies a learned gain. Before a sublayer it is pre-norm, after it post-norm."
   ],
   [
    "RMSNorm",
    "Layer norm without subtracting the mean."
   ],
   [
    "feed-forward network",
    "A two-layer MLP that is applied to each position on its own."
   ],
   [
    "SwiGLU",
    "A gated MLP: down(silu(gate(x)) * up(x))."
   ],
   [
    "encoder",
    "Reads a whole sequence, without a causal mask; BERT is one."
   ],
   [
    "decoder",
    "Predicts the next token, with a causal mask; GPT and Llama are decoders."
   ],
   [
    "encoder-decoder",
    "An encoder reads the source, a decoder writes the target and attends to it: the Transformer of the 2017 paper."
   ],
   [
    "LM head",
    "The output layer: from hidden states to one logit for each token of the vocabulary."
   ],
   [
    "logits",
    "The model's raw scores for the next token; softmax turns them into probabilities."
   ],
   [
    "RNN",
    "A recurrent network reads token by token and carries a state: the baseline before Transformers."
   ],
   [
    "word2vec",
    "Word vectors trained to predict neighbouring words (CBOW, skip-gram)."
   ]
  ]
 },
 {
  "title": "Training",
  "terms": [
   [
    "cross-entropy",
    "The training loss: minus the log-probability of the right token."
   ],
   [
    "teacher forcing",
    "In training the decoder reads the right previous tokens, not its own predictions, so all positions are trained at once."
   ],
   [
    "perplexity",
    "e to the mean loss per token; 1 is perfect."
   ],
   [
    "learning rate",
    "The size of an optimizer step."
   ],
   [
    "warmup",
    "The first part of training, in which the learning rate rises from 0."
   ],
   [
    "AdamW",
    "The usual optimizer: momentum and per-weight step sizes (beta1, beta2) with decoupled weight decay."
   ],
   [
    "Muon",
    "An optimizer that orthogonalizes the momentum of weight matrices."
   ],
   [
    "weight decay",
    "Pulls weights towards 0 at each step."
   ],
   [
    "chain rule",
    "The gradient of a number is the gradient of what it goes into, times how much that changes with it."
   ],
   [
    "gradient clipping",
    "Scales gradients down when their norm is too large."
   ],
   [
    "data loader",
    "Delivers shuffled batches; here the order depends only on seed, epoch and position."
   ],
   [
    "checkpoint",
    "Weights, optimizer state and progress of a run on disk; training resumes from it exactly."
   ],
   [
    "DDP",
    "Data-parallel training: every process has the whole model and a part of each batch. FSDP also shards the weights."
   ],
   [
    "bfloat16",
    "A 16-bit float with the range of float32; used for mixed-precision training."
   ]
  ]
 },
 {
  "title": "Generation and serving",
  "terms": [
   [
    "KV cache",
    "Keys and values of earlier tokens, kept so that each new token is computed alone."
   ],
   [
    "prefill",
    "The first forward pass of a request: the whole prompt at once, which fills the KV cache."
   ],
   [
    "decode step",
    "One forward pass that adds one token to each running sequence."
   ],
   [
    "scheduler",
    "Decides which requests run in the next step; with continuous batching, requests join and leave at any step."
   ],
   [
    "prefix cache",
    "KV-cache pages of prompts that begin alike, shared between requests."
   ],
   [
    "sampling",
    "How the next token is chosen from the probabilities: greedy, temperature, top-k, top-p, min-p, penalties."
   ],
   [
    "beam search",
    "Keeps the most probable partial sequences instead of one."
   ],
   [
    "speculative decoding",
    "Proposes several tokens cheaply and checks them in one forward pass; the text stays the same."
   ],
   [
    "detokenizer",
    "Turns ids into text while they arrive, without splitting a character, and watches for stop strings."
   ],
   [
    "quantization",
    "Weights in 8-bit integers: smaller and faster, slightly less exact."
   ],
   [
    "batch invariance",
    "A sequence gives the same bits alone and in any batch."
   ],
   [
    "OpenAI-compatible",
    "The HTTP API under `/v1` that OpenAI's client and many others speak."
   ]
  ]
 },
 {
  "title": "Inspection and verification",
  "terms": [
   [
    "tap",
    "An explicit argument of a forward pass that receives chosen activations; without one, nothing is computed extra."
   ],
   [
    "activation",
    "Any intermediate tensor of a forward pass: scores, weights, hidden states."
   ],
   [
    "ablation",
    "Removing a head or layer and measuring what changes."
   ],
   [
    "activation patching",
    "Replacing an activation by that of another text, to see what it causes."
   ],
   [
    "steering",
    "Adding a vector to the residual stream, to push the output in one direction."
   ],
   [
    "logit attribution",
    "A logit as a sum of what each head, MLP and the embedding add to it directly."
   ],
   [
    "logit lens",
    "What the model would predict if it stopped after each layer."
   ],
   [
    "attention rollout",
    "The attention matrices of all layers multiplied, with the residual connection."
   ],
   [
    "induction head",
    "A head that looks for an earlier copy of the current token and attends to what followed it."
   ],
   [
    "alignment",
    "Which source word each target word was translated from."
   ],
   [
    "trace",
    "Every operation of one call of your code, in order, with its inputs, its result and its line: `peasy prove` reads attention from it."
   ],
   [
    "convention",
    "A choice that correct code may make either way: what True means in a mask, the order of a fused projection, a norm of queries and keys. `peasy prove` compares with it; it is no mistake."
   ],
   [
    "not compared",
    "The verdict when something in the code is not understood: neither right nor wrong, with the reason."
   ],
   [
    "mutant",
    "Correct code with one line changed, to see whether the mistake is named."
   ],
   [
    "cosine similarity",
    "The cosine of the angle between two vectors; 1 means the same direction."
   ],
   [
    "BLEU",
    "Overlap of n-grams between a translation and its reference."
   ],
   [
    "weight map",
    "The table between peasy's weight names and another library's, used in both directions."
   ]
  ]
 },
 {
  "title": "On paper",
  "terms": [
   [
    "computation graph",
    "The named steps of a worked example, each computed from others; explaining and checking walk the same graph."
   ],
   [
    "gradient",
    "How much the loss changes with each number: the derivative of the loss by it. Training moves weights against it."
   ],
   [
    "one-hot",
    "A row of zeros with a single 1, in the column of a word; times a table it picks the word's row."
   ],
   [
    "label smoothing",
    "Targets that give a small share to every word, so that the model does not become too sure."
   ],
   [
    "momentum",
    "The update follows a moving sum of gradients instead of the last one."
   ],
   [
    "bias correction",
    "Division of AdamW's moments by 1 - βᵗ, because they start at zero."
   ],
   [
    "GRU, LSTM",
    "Recurrent networks with gates: shares between 0 and 1 that say what is kept, written and shown."
   ],
   [
    "interval arithmetic",
    "Calculation with bounds: a number printed as 0.71 may be anything that rounds to it, and so may what follows from it."
   ],
   [
    "slip",
    "A mistake with a name, such as scores that were not scaled, found by calculating the wrong way and comparing."
   ]
  ]
 }
];
