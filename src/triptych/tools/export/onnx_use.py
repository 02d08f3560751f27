"""Python code that uses the graphs of an export with onnxruntime alone, for the model card."""

from __future__ import annotations

DECODER = """\
`step.onnx` predicts one position: `value` is the value before it (-1 for none, at position 0),
`position` its number, the other inputs are the caches, zeros at first. `onnx.json` names the
values, and the row, column and channel of each position of an image.

```python
import numpy as np
import onnxruntime

step = onnxruntime.InferenceSession("FOLDER/step.onnx")
outputs = [output.name for output in step.get_outputs()]
kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
feed = {i.name: np.zeros([1, *i.shape[1:]], kinds[i.type]) for i in step.get_inputs()}
CLASSfeed["value"][:] = -1
random, values = np.random.default_rng(0), []
for position in range(LENGTH):
    feed["position"] = np.array([position])
    logits, *caches = step.run(outputs, feed)
    feed.update(zip((name.removesuffix("_out") for name in outputs[1:]), caches))
    p = np.exp(logits[0] - logits.max())
    values.append(random.choice(len(p), p=p / p.sum()))
    feed["value"] = np.array([[values[-1]]])
print(values)
```"""

TRANSLATOR = """\
`encoder.onnx` reads a source; `step.onnx` predicts one token. `padding` is True on padding of the
source. The caches have as many slots as there are tokens to write.

```python
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("FOLDER/tokenizer.json")
encoder = onnxruntime.InferenceSession("FOLDER/encoder.onnx")
step = onnxruntime.InferenceSession("FOLDER/step.onnx")
source = np.array([tokenizer.encode("A man plays the guitar.").ids])
padding = np.zeros(source.shape, bool)
memory = encoder.run(None, {"source": source, "padding": padding})
feed = dict(zip((output.name for output in encoder.get_outputs()), memory))
outputs = [output.name for output in step.get_outputs()]
for i in step.get_inputs():
    if i.name.startswith(("key", "value_")):
        feed[i.name] = np.zeros([1, i.shape[1], LENGTH, i.shape[3]], np.float32)
feed["padding"], tokens = padding, [1]  # <s>
for position in range(LENGTH):
    feed["value"], feed["position"] = np.array([tokens[-1:]]), np.array([position])
    logits, *caches = step.run(outputs, feed)
    feed.update(zip((name.removesuffix("_out") for name in outputs[1:]), caches))
    logits[:, :2] = -np.inf  # <pad>, <s>
    tokens.append(int(logits[0].argmax()))
    if tokens[-1] == 2:  # </s>
        break
print(tokenizer.decode(tokens))
```"""
