/**
 * The view library in one place: templates, rendering and hooks. Modules import
 * from here, so that what is vendored can be replaced by changing one file.
 */
import { h, render, Component, Fragment } from '../vendor/preact.mjs';
import htm from '../vendor/htm.mjs';

export { render, Component, Fragment };
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback } from '../vendor/hooks.mjs';

/** Tagged template that makes elements. Text in it is always text, never markup. */
export const html = htm.bind(h);
