import { afterEach, describe, expect, it, vi } from "vitest";
import { melody, play, silence } from "../src/watch/tones";

const nan = Number.NaN;
const pitches = (values: ArrayLike<number>): number[] => melody(values).map(({ hertz }) => hertz);

describe("a melody", () => {
  it.each([1, 2, 10, 75, 76, 1000, 100_000])("of %i values takes three seconds at most, one tone after the other", (count) => {
    const tones = melody(Float32Array.from({ length: count }, (_, index) => index + 1));
    const last = tones.at(-1);
    expect((last?.at ?? 0) + (last?.seconds ?? 0)).toBeLessThanOrEqual(3 + 1e-9);
    tones.forEach(({ at, seconds }, index) => expect(at).toBeCloseTo(index * seconds, 9));
  });

  it("rises with the value: equal steps for equal factors", () => {
    const found = pitches([1, 10, 100, 1000]);
    expect(found[0]).toBeCloseTo(220, 6);
    expect(found[3]).toBeCloseTo(1760, 6);
    expect(Math.log2((found[1] as number) / (found[0] as number))).toBeCloseTo(1, 6);
    expect(Math.log2((found[2] as number) / (found[1] as number))).toBeCloseTo(1, 6);
  });

  it("has a place for signs and zeros", () => {
    const found = pitches([-5, -0.1, 0, 0.1, 5]);
    for (let index = 1; index < found.length; index += 1) expect(found[index]).toBeGreaterThan(found[index - 1] as number);
    expect(found[2]).toBeCloseTo(220 * 2 ** 1.5, 3);
    const zeros = pitches([0, 0, 1, 10]);
    expect([zeros[0] === zeros[1], (zeros[0] as number) < (zeros[2] as number)]).toEqual([true, true]);
  });

  it("is silent where there is no number, and stays finite", () => {
    expect(pitches([1, nan, 2, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]).map((hertz) => hertz > 0)).toEqual([true, false, true, false, false]);
    expect(pitches([])).toEqual([]);
    expect(pitches([nan, nan])).toEqual([0, 0]);
    expect(pitches([7, 7, 7])).toEqual([7, 7, 7].map(() => 220 * 2 ** 1.5));
    expect(pitches([0, 0])).toEqual([0, 0].map(() => 220 * 2 ** 1.5));
    for (const hertz of pitches([1e-45, 3e38, -3e38])) expect(hertz).toBeGreaterThanOrEqual(220);
  });

  it("hears what is sampled seldom", () => {
    const sparse = Float32Array.from({ length: 7500 }, (_, index) => (index % 50 ? nan : 1 + index));
    expect(pitches(sparse).every((hertz) => hertz > 0)).toBe(true);
  });
});

interface Played {
  hertz: number[];
  started: number;
  stopped: number;
  closed: number;
}

function speaker(broken = ""): Played {
  const played: Played = { hertz: [], started: 0, stopped: 0, closed: 0 };
  const refuse = (what: string): void => {
    if (broken === what) throw new Error(what);
  };
  vi.stubGlobal("AudioContext", class {
    currentTime = 0;
    destination = {};
    constructor() {
      refuse("made");
    }
    createOscillator(): unknown {
      refuse("oscillator");
      return {
        type: "", onended: null, connect: () => {}, frequency: { setValueAtTime: (hertz: number) => void played.hertz.push(hertz) },
        start: () => void (played.started += 1),
        stop: (at?: number) => {
          if (at === undefined) {
            played.stopped += 1;
            refuse("stop");
          }
        },
      };
    }
    createGain(): unknown {
      return { connect: () => {}, gain: { setValueAtTime: () => {}, setTargetAtTime: () => {} } };
    }
    resume(): Promise<void> {
      return broken === "resume" ? Promise.reject(new Error("resume")) : Promise.resolve();
    }
    close(): Promise<void> {
      played.closed += 1;
      return Promise.resolve();
    }
  });
  return played;
}

afterEach(() => {
  silence();
  vi.unstubAllGlobals();
});

describe("playing", () => {
  it("does nothing where there is no sound", () => {
    vi.stubGlobal("AudioContext", undefined);
    expect(play([1, 2, 3])).toBe(0);
  });

  it("plays the melody", () => {
    const played = speaker();
    expect(play([1, nan, 100])).toBeCloseTo(0.75, 9);
    expect([played.started, played.hertz]).toEqual([1, [220, 1760].map((hertz) => expect.closeTo(hertz, 6))]);
    expect(play([nan])).toBe(0);
  });

  it("ends what was played before", () => {
    const played = speaker();
    play([1, 2]);
    play([3, 4]);
    expect([played.started, played.stopped, played.closed]).toEqual([2, 1, 1]);
    silence();
    silence();
    expect([played.stopped, played.closed]).toEqual([2, 2]);
  });

  it.each(["made", "oscillator", "resume", "stop"])("never throws (%s)", async (what) => {
    speaker(what);
    expect(() => (play([1, 2]), play([1, 2]), silence())).not.toThrow();
    await Promise.resolve();
  });
});
