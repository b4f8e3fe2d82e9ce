/** A series as tones: high is much, low is little, silence is where there is no number. */

export interface Tone {
  /** Seconds from the beginning. */
  at: number;
  seconds: number;
  /** 0 is silence. */
  hertz: number;
}

const LONGEST = 3;
const SHORTEST = 0.04;
const SLOWEST = 0.25;
/** Three octaves, from A3. */
const LOW = 220;
const OCTAVES = 3;

/** What is played: at most three seconds, the pitch rising with the value on a logarithmic scale (about zero a linear one). */
export function melody(values: ArrayLike<number>, longest = LONGEST): Tone[] {
  const means = gathered(values, Math.floor(longest / SHORTEST));
  const bend = bent(means);
  const heights = means.map((mean) => (Number.isFinite(mean) ? bend(mean) : Number.NaN));
  const known = heights.filter((height) => !Number.isNaN(height));
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const seconds = Math.min(SLOWEST, longest / Math.max(1, means.length));
  return heights.map((height, index) => ({
    at: index * seconds,
    seconds,
    hertz: Number.isNaN(height) ? 0 : LOW * 2 ** (OCTAVES * (high > low ? (height - low) / (high - low) : 0.5)),
  }));
}

/** Neighbours together, so that there are no more than `most`: the mean of what is finite. */
function gathered(values: ArrayLike<number>, most: number): number[] {
  const count = Math.min(values.length, most);
  return Array.from({ length: count }, (_, index) => {
    let [sum, finite] = [0, 0];
    const end = Math.floor(((index + 1) * values.length) / count);
    for (let at = Math.floor((index * values.length) / count); at < end; at += 1) {
      const value = values[at] as number;
      if (Number.isFinite(value)) [sum, finite] = [sum + value, finite + 1];
    }
    return finite ? sum / finite : Number.NaN;
  });
}

/** Logarithmic in magnitude; linear below a thousandth of the largest, so that signs and zeros have a place. */
function bent(values: readonly number[]): (value: number) => number {
  const sizes = values.filter((value) => Number.isFinite(value) && value !== 0).map(Math.abs);
  const least = Math.max(Math.min(...sizes), Math.max(...sizes) / 1e6);
  const isSigned = values.some((value) => value < 0);
  const core = isSigned ? Math.max(...sizes) / 1e3 : least;
  if (!(core > 0 && core < Number.POSITIVE_INFINITY)) return () => 0;
  return isSigned ? (value) => Math.asinh(value / core) : (value) => Math.log(Math.max(value, core / 2));
}

let stopLast: (() => void) | null = null;

/** Plays a series; gives the seconds it takes, 0 where there is nothing to play or no sound. A second call ends the first. */
export function play(values: ArrayLike<number>): number {
  silence();
  const tones = melody(values);
  if (!tones.some(({ hertz }) => hertz > 0)) return 0;
  try {
    return sound(tones);
  } catch {
    // No sound is no reason to stop a view: the numbers are on the screen.
    return 0;
  }
}

/** Ends what is being played. */
export function silence(): void {
  const stop = stopLast;
  stopLast = null;
  try {
    stop?.();
  } catch {
    // It had ended already.
  }
}

const VOLUME = 0.12;
/** A tone that begins or ends at once clicks. */
const FADE = 0.006;

function sound(tones: readonly Tone[]): number {
  const Maker = globalThis.AudioContext;
  if (typeof Maker !== "function") return 0;
  const audio = new Maker();
  const close = (): void => void Promise.resolve(audio.close?.()).catch(() => {});
  try {
    const [source, volume] = [audio.createOscillator(), audio.createGain()];
    source.type = "triangle";
    source.connect(volume);
    volume.connect(audio.destination);
    void Promise.resolve(audio.resume?.()).catch(() => {});
    const begin = audio.currentTime + 0.03;
    volume.gain.setValueAtTime(0, audio.currentTime);
    for (const { at, hertz } of tones) {
      if (hertz) source.frequency.setValueAtTime(hertz, begin + at);
      volume.gain.setTargetAtTime(hertz ? VOLUME : 0, begin + at, FADE);
    }
    const last = tones.at(-1) as Tone;
    const end = last.at + last.seconds;
    volume.gain.setTargetAtTime(0, begin + end, FADE);
    source.onended = close;
    source.start(begin);
    source.stop(begin + end + 10 * FADE);
    stopLast = () => {
      source.onended = null;
      source.stop();
      close();
    };
    return end;
  } catch (error) {
    close();
    throw error;
  }
}
