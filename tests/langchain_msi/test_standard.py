"""LangChain's own suites for chat models, on the embedded model; nothing is overridden."""

import pytest
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from langchain_msi import ChatMSI


class TestUnit(ChatModelUnitTests):
    @property
    def chat_model_class(self):
        return ChatMSI

    @property
    def has_tool_calling(self):
        return False  # the embedded model's chat template has no tools

    @property
    def chat_model_params(self):
        return {"model": "embedded"}


@pytest.mark.real_model
@pytest.mark.usefixtures("home")
class TestIntegration(ChatModelIntegrationTests):
    @property
    def chat_model_class(self):
        return ChatMSI

    @property
    def has_tool_calling(self):
        return False  # the embedded model's chat template has no tools

    @property
    def chat_model_params(self):
        return {"k": 2, "max_tokens": 16, "seed": 0}

    @property
    def model_override_value(self):
        return "embedded"

    @property
    def structured_output_kwargs(self):
        # The suite's strings have no bound, and a small greedy model would fill them for ever.
        return {"max_tokens": 400, "frequency_penalty": 0.5, "frequency_context_size": 200}
