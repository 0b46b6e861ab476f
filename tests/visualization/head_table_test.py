from matplotlib import image

from tpt_keras.visualization.head_table import draw_head_tables


def test_a_panel_for_every_title(tmp_path):
    widths = []
    for count in (1, 3):
        path = tmp_path / f"{count}.png"
        panels = {f"panel {i}": [[0.1, 0.9], [0.5, 1.2]] for i in range(count)}
        draw_head_tables(panels, "share", path)
        widths.append(image.imread(path).shape[1])
    assert widths[1] > 1.5 * widths[0]
