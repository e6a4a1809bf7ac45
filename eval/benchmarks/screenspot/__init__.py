"""ScreenSpot, v2 and Pro: where on one screenshot to click; `data` reads the published files. See
eval.screenspot."""
