from desktop_env.controllers.website import prepare_stateful_website_urls
from desktop_env.evaluators.model_client import generate_text
from desktop_env.task_base import BaseTask


class Task900(BaseTask):
    id = "900"
    snapshot = "chrome"
    instruction = "Answer the mail of the office."
    related_apps = ["chrome", "mailhub"]
    proxy = False

    def setup(self, setup_controller, use_proxy=False):
        urls = prepare_stateful_website_urls(app="mailhub", state={})
        setup_controller.open_chrome(urls)

    def evaluate(self, env):
        return {"score": float(generate_text("Is it a good answer?") == "YES")}


TASK_CLASS = Task900
