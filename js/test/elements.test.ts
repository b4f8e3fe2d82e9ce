// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { lines } from "../src/elements";

describe("lines", () => {
  it("breaks long names behind a dot, and leaves a share whole", () => {
    const made = lines("net.layers.0 fires on 2.8 % of 4,978 inputs, 5 of model_parts");
    expect(made.textContent).toBe("net.layers.0 fires on 2.8 % of 4,978 inputs, 5 of model_parts");
    expect([...made.childNodes].map((node) => (node.nodeName === "WBR" ? "|" : node.nodeName === "SPAN" ? `<${node.textContent}>` : node.textContent)).join("")).toBe(
      "net.|layers.0 fires on <2.8 %> of 4,978 inputs, 5 of model_|parts",
    );
  });
});
